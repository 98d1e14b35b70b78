package ovs

import (
	"towtank/sim/packet"
)

// macAge is how long a learned Ethernet address is kept (ovs-vswitchd.conf.db, mac-aging-time).
const macAge = 300 * second

type macKey struct {
	mac  packet.MAC
	vlan uint16
}

type macEntry struct {
	port uint32
	at   int64
}

// normal switches as a learning switch does. A port's tag puts it into a VLAN: its frames carry no tag,
// and go to ports of that VLAN, and with the tag to ports without one (trunks).
func (r *run) normal(rl *rule, t uint8) {
	s := r.s
	in := r.k.inPort()
	tci := uint16(r.k[wEthSrc])
	vlan := tci & 0xfff
	if st := s.byNumber[in]; st != nil && st.tag() != 0 {
		if tci&0x1000 != 0 && vlan != 0 {
			r.drop(s.tableName(t), cookieOf(rl), "NORMAL: a frame with a tag from access port %s", st.Name)
			return
		}
		vlan = st.tag()
	}
	now := s.now()
	src, dst := toMAC(r.k[wEthSrc]>>16), toMAC(r.k[wEthDst]>>16)
	if !src.IsMulticast() {
		s.sawMAC(macKey{src, vlan}, macEntry{in, now})
	}
	if m, ok := s.macs[macKey{dst, vlan}]; ok && !dst.IsMulticast() && now-m.at < macAge {
		if m.port == in {
			r.drop(s.tableName(t), cookieOf(rl), "NORMAL: %s is where the frame came from", dst)
			return
		}
		r.emitVLAN(m.port, vlan, rl, t)
		return
	}
	for _, st := range s.Ports() {
		if st.OFPort == 0 || !st.Up || st.OFPort == in || st.tag() != 0 && st.tag() != vlan || st.IsTunnel() && !r.hasTunnelDst(st) {
			continue
		}
		r.emitVLAN(st.OFPort, vlan, rl, t)
	}
}

func (r *run) hasTunnelDst(st *PortState) bool {
	dst, _, _ := r.s.tunnelEnds(st, &r.k)
	return dst.IsValid()
}

// emitVLAN sends the frame in a VLAN: without tag to an access port, with one to a trunk.
func (r *run) emitVLAN(port uint32, vlan uint16, rl *rule, t uint8) {
	word := r.k[wEthSrc]
	tci := uint16(word)
	switch st := r.s.byNumber[port]; {
	case st != nil && st.tag() != 0:
		tci = 0
	case vlan != 0:
		tci = tci&0xe000 | 0x1000 | vlan
	}
	r.k[wEthSrc] = word&^0xffff | uint64(tci)
	r.emit(port, rl, t, "NORMAL ")
	r.k[wEthSrc] = word
}

func (p *PortState) tag() uint16 {
	if p.Port == nil {
		return 0
	}
	return p.Port.Tag()
}
