package ovs

import (
	"fmt"
	"net/netip"

	"towtank/datapath/openflow"
	"towtank/sim/packet"
)

// Limits of OVS's translation (ofproto-dpif-xlate.c: MAX_DEPTH, MAX_RESUBMITS). Only a resubmit to the
// same or an earlier table counts as deeper.
const (
	maxDepth     = 64
	maxResubmits = maxDepth * maxDepth
)

// run is one packet on its way through the tables, up to a recirculation: that goes on in a copy.
type run struct {
	s          *Switch
	pkt        *packet.Packet // as it came; never changed
	k          key
	inner      *packet.Packet // replaces pkt.Inner if NAT changed the packet inside an ICMP error
	ct         ctMeta
	depth      int
	resubmits  int
	groupDepth int
	recircs    int // passes through the datapath before this one
	aborted    bool
	learned    []learned // in this pass
	shared     *shared
}

// shared is common to a run and its recirculated copies.
type shared struct {
	metered bool // a meter took the packet away, in the present pass through the datapath
	left    int  // frames that left, or went to the controller
	ended   bool
}

// Receive takes a frame that arrives at a port.
func (s *Switch) Receive(inPort uint32, p *packet.Packet) {
	r, ok := s.begin(inPort, p)
	if !ok {
		return
	}
	r.start()
}

// ReceiveTunnel takes a frame that was decapsulated at a tunnel port.
func (s *Switch) ReceiveTunnel(port uint32, p *packet.Packet, tunSrc, tunDst netip.Addr, tunID uint64) {
	r, ok := s.begin(port, p)
	if !ok {
		return
	}
	r.recircs = 1 // it came through the datapath once already, in its tunnel
	r.k[wTunID] = tunID
	if tunSrc.Is6() || tunDst.Is6() {
		r.k.setVal(openflow.TunIPv6Src, openflow.AddrValue(tunSrc))
		r.k.setVal(openflow.TunIPv6Dst, openflow.AddrValue(tunDst))
	} else {
		r.k[wTunIPv4] = v4(tunSrc)<<32 | v4(tunDst)
	}
	r.start()
}

// PacketOut sends a packet of the controller through actions, as if it had come from inPort.
func (s *Switch) PacketOut(inPort uint32, p *packet.Packet, actions ...openflow.Action) error {
	if err := s.checkActions(actions, false); err != nil {
		return fmt.Errorf("packet-out: %w", err)
	}
	if s.stopped {
		return fmt.Errorf("packet-out: %w", errNotConnected)
	}
	s.Tick()
	r := s.newRun(inPort, p)
	if s.tracer != nil {
		s.step("packet-out", openflow.ActionsText(actions), 0, false)
	}
	next := r.actions(actions, nil, 0)
	if next >= 0 {
		r.lookup(uint8(next))
	}
	r.end()
	return nil
}

func (s *Switch) begin(inPort uint32, p *packet.Packet) (*run, bool) {
	if s.stopped {
		s.counters.Stopped++
		s.dropf("in_port "+openflow.PortName(inPort), 0, "the switch is not running")
		return nil, false
	}
	s.Tick()
	st := s.byNumber[inPort]
	if st == nil || !st.Up {
		s.dropf("in_port "+openflow.PortName(inPort), 0, "no such port, or it is down")
		return nil, false
	}
	if s.tracer != nil {
		s.step("in_port "+openflow.PortName(inPort)+" "+st.Name, p.String(), 0, false)
	}
	return s.newRun(inPort, p), true
}

func (s *Switch) newRun(inPort uint32, p *packet.Packet) *run {
	r := &run{s: s, pkt: p, shared: &shared{}}
	r.k.extract(p)
	r.k.setInPort(inPort)
	if s.cfg.Datapath == "system" {
		r.k.setNum(openflow.PktMark, uint64(p.Mark))
	}
	return r
}

func (r *run) start() {
	r.lookup(0)
	r.end()
}

// end traces that the packet went nowhere, unless that was said.
func (r *run) end() {
	r.passed()
	r.s.silent = false
	if r.s.tracer != nil && r.shared.left == 0 && !r.shared.ended {
		r.s.step("end", "no action sent the packet anywhere", 0, true)
	}
}

// drop traces the end of this copy of the packet.
func (r *run) drop(where string, cookie uint64, format string, args ...any) {
	if r.s.tracer != nil {
		r.shared.ended = true
		r.s.step(where, fmt.Sprintf(format, args...), cookie, true)
	}
}

// abort ends the translation.
func (r *run) abort(table uint8, rl *rule, format string, args ...any) {
	r.aborted = true
	r.s.counters.TooDeep++
	r.drop(r.s.tableName(table), cookieOf(rl), format, args...)
}

func cookieOf(r *rule) uint64 {
	if r == nil {
		return 0
	}
	return r.flow.Cookie()
}

// lookup matches the packet in a table and runs the flow's actions, and so on along goto_table.
func (r *run) lookup(t uint8) {
	s := r.s
	for {
		rl := s.tables[t].lookup(&r.k)
		if rl == nil {
			if s.tracer != nil {
				s.step(s.tableName(t), "miss", 0, false)
			}
			return
		}
		rl.packets++
		rl.used = s.now()
		if s.tracer != nil {
			s.step(s.tableName(t), rl.flow.String(), rl.flow.Cookie(), false)
			if len(rl.flow.Actions()) == 0 {
				r.drop(s.tableName(t), rl.flow.Cookie(), "actions=drop")
			}
		}
		next := r.actions(rl.flow.Actions(), rl, t)
		if next < 0 || r.aborted {
			return
		}
		t = uint8(next)
	}
}

// actions runs a list of actions and returns the table of a goto_table at its end, else -1. rl is the
// flow that they are of, nil for a packet-out.
func (r *run) actions(list []openflow.Action, rl *rule, t uint8) (next int) {
	for _, a := range list {
		if r.aborted {
			return -1
		}
		switch a := a.(type) {
		case openflow.SetFieldAction:
			r.k.set(a.Field, a.Value, a.Mask)
			if a.Field == openflow.VLANVID { // the value carries the bit that says there is a tag
				r.k[wEthSrc] |= 0x1000
			}
		case openflow.MoveAction:
			r.k.setRange(a.Dst, r.k.get(a.Src))
		case openflow.GotoAction:
			return int(a.Table)
		case openflow.ResubmitAction:
			r.resubmit(a, rl, t)
		case openflow.OutputAction:
			r.output(a.Port, rl, t)
		case openflow.OutputRegAction:
			r.output(portNumber(uint16(r.k.get(a.Src).Lo)), rl, t)
		case openflow.GroupAction:
			r.group(a.ID, rl, t)
		case openflow.CT:
			r.track(a, rl, t)
		case openflow.CTClearAction:
			r.clearCT()
		case openflow.Learn:
			r.learn(a, rl, t)
		case openflow.DecTTLAction:
			if !r.decTTL(rl, t) {
				return -1
			}
		case openflow.MeterAction:
			r.meter(a.ID, rl, t)
		case openflow.Controller:
			r.controller(a, rl, t)
		case openflow.PushVLANAction:
			if r.k[wEthSrc]&0x1000 != 0 {
				r.s.counters.Unmodelled++
				r.drop(r.s.tableName(t), cookieOf(rl), "push_vlan on a frame with a tag: a second tag is not modelled")
				r.aborted = true
				return -1
			}
			r.k[wEthSrc] = r.k[wEthSrc]&^0xffff | 0x1000
		case openflow.PopVLANAction:
			r.k[wEthSrc] &^= 0xffff
		}
	}
	return -1
}

func (r *run) resubmit(a openflow.ResubmitAction, rl *rule, t uint8) {
	to := a.Table
	if to == 255 {
		to = t
	}
	if to > openflow.MaxTable {
		return
	}
	if r.resubmits++; r.resubmits > maxResubmits {
		r.abort(t, rl, "over %d resubmits", maxResubmits)
		return
	}
	if to <= t {
		if r.depth >= maxDepth {
			r.abort(t, rl, "over %d resubmits deep", maxDepth)
			return
		}
		r.depth++
		defer func() { r.depth-- }()
	}
	if !a.SetPort || a.InPort == openflow.PortInPort {
		r.lookup(to)
		return
	}
	// Only the lookup of the first flow sees the other port.
	port := r.k.inPort()
	r.k.setInPort(a.InPort)
	found := r.s.tables[to].lookup(&r.k)
	r.k.setInPort(port)
	if found == nil {
		return
	}
	found.packets++
	found.used = r.s.now()
	if r.s.tracer != nil {
		r.s.step(r.s.tableName(to), found.flow.String(), found.flow.Cookie(), false)
	}
	if next := r.actions(found.flow.Actions(), found, to); next >= 0 {
		r.lookup(uint8(next))
	}
}

// recirculate ends a pass through the tables. It reports whether another one through the datapath may begin: what is dropped
// by the limit is the packet that would go there, and not what follows here.
func (r *run) recirculate(t uint8, rl *rule) bool {
	if r.shared.metered {
		return false
	}
	r.passed()
	return r.again(t, rl)
}

// again reports whether the packet may go through the datapath once more.
func (r *run) again(t uint8, rl *rule) bool {
	if r.recircs >= r.s.cfg.MaxRecirculations {
		r.s.counters.Recirculations++
		r.drop(r.s.tableName(t), cookieOf(rl), "over %d recirculations", r.s.cfg.MaxRecirculations)
		return false
	}
	return true
}

func (r *run) decTTL(rl *rule, t uint8) bool {
	if !r.k.isIP() {
		return true // by a group only: a flow must match ip
	}
	ttl := uint8(r.k[wIP] >> 24)
	if ttl <= 1 {
		r.drop(r.s.tableName(t), cookieOf(rl), "dec_ttl: the TTL is %d", ttl)
		return false // only this list of actions ends
	}
	r.k[wIP] -= 1 << 24
	return true
}

// meter takes the packet away if it is over the rate. Then nothing of it leaves any more. What OVS does while it
// translates, before the datapath meets the meter, it does all the same: it learns.
func (r *run) meter(id uint32, rl *rule, t uint8) {
	m := r.s.meters[id]
	if r.shared.metered || m == nil || r.s.pass(m, frameSize(r.pkt)) {
		return
	}
	r.s.counters.Metered++
	r.drop(r.s.tableName(t), cookieOf(rl), "meter %d: over the rate", id)
	r.shared.metered = true
	r.s.silent = true
}

// frameSize is the length of the frame in bytes.
func frameSize(p *packet.Packet) int {
	const header, least = 14, 60
	return max(p.Size+header, least)
}

// packet returns the packet as it is now.
func (r *run) packet() *packet.Packet {
	p := *r.pkt
	r.k.deposit(&p)
	if r.inner != nil {
		p.Inner = r.inner
	}
	if p.Inner != nil {
		p.Inner = p.Inner.Clone()
	}
	p.Mark = 0
	if r.s.cfg.Datapath == "system" {
		p.Mark = uint32(r.k.num(openflow.PktMark))
	}
	return &p
}

func (r *run) controller(a openflow.Controller, rl *rule, t uint8) {
	s := r.s
	if r.shared.metered {
		return
	}
	if m := s.meters[a.MeterID]; a.MeterID != 0 && m != nil && !s.pass(m, frameSize(r.pkt)) {
		s.counters.Metered++
		r.drop(s.tableName(t), cookieOf(rl), "controller: meter %d: over the rate", a.MeterID)
		return
	}
	r.shared.left++
	in := PacketIn{
		Packet: r.packet(), InPort: r.k.inPort(), Userdata: a.Userdata, Cookie: cookieOf(rl), TableID: t, Reason: a.Reason,
		PktMark: uint32(r.k.num(openflow.PktMark)), CTState: uint32(r.k.num(openflow.CTState)), CTMark: uint32(r.k.num(openflow.CTMark)),
		CTZone: uint16(r.k.num(openflow.CTZone)), TunID: r.k[wTunID],
	}
	if in.Reason == "" {
		in.Reason = "action"
	}
	in.TunSrc = optionAddr("", uint32(r.k[wTunIPv4]>>32), r.k.val(openflow.TunIPv6Src))
	in.TunDst = optionAddr("", uint32(r.k[wTunIPv4]), r.k.val(openflow.TunIPv6Dst))
	for i := range in.Regs {
		in.Regs[i] = uint32(r.k.num(openflow.Reg(i)))
	}
	if s.tracer != nil {
		s.step(s.tableName(t), "packet-in: "+in.Packet.String(), cookieOf(rl), false)
	}
	if s.cfg.PacketIn != nil {
		s.cfg.PacketIn(in)
	}
}

// output sends the packet as it is now out of a port or a reserved port.
func (r *run) output(port uint32, rl *rule, t uint8) {
	switch port {
	case openflow.PortInPort:
		r.emit(r.k.inPort(), rl, t, "IN_PORT ")
		return
	case openflow.PortNormal:
		r.normal(rl, t)
		return
	case openflow.PortFlood, openflow.PortAll:
		for _, st := range r.s.Ports() {
			if st.OFPort != 0 && st.Up && st.OFPort != r.k.inPort() {
				r.emit(st.OFPort, rl, t, "FLOOD ")
			}
		}
		return
	case openflow.PortController:
		r.controller(openflow.Controller{}, rl, t)
		return
	}
	if port == r.k.inPort() {
		r.drop(r.s.tableName(t), cookieOf(rl), "output to port %s: it is where the packet came from", openflow.PortName(port))
		return
	}
	r.emit(port, rl, t, "")
}

// emit has a frame leave by a port.
func (r *run) emit(port uint32, rl *rule, t uint8, how string) {
	s := r.s
	if r.shared.metered {
		return
	}
	st := s.byNumber[port]
	if st == nil || !st.Up {
		s.counters.ToMissingPort++
		r.drop(s.tableName(t), cookieOf(rl), "output %sto port %s: there is no such port, or it is down", how, openflow.PortName(port))
		return
	}
	if st.IsTunnel() {
		dst, src, id := s.tunnelEnds(st, &r.k)
		if !dst.IsValid() {
			s.counters.TunnelWithoutDst++
			r.drop(s.tableName(t), cookieOf(rl), "output %sto tunnel port %d %s: tun_dst is not set", how, port, st.Name)
			return
		}
		p := r.packet()
		p.Mark = 0
		r.shared.left++
		if s.tracer != nil {
			s.step(s.tableName(t), fmt.Sprintf("output %sto tunnel port %d %s to %s id %#x: %s", how, port, st.Name, dst, id, p), cookieOf(rl), false)
		}
		if s.cfg.Tunnel != nil {
			s.cfg.Tunnel(st, p, dst, src, id)
		}
		return
	}
	p := r.packet()
	r.shared.left++
	if s.tracer != nil {
		s.step(s.tableName(t), fmt.Sprintf("output %sto port %s %s: %s", how, openflow.PortName(port), st.Name, p), cookieOf(rl), false)
	}
	if s.cfg.Output != nil {
		s.cfg.Output(port, p)
	}
}
