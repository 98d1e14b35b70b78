package ovs

import (
	"fmt"

	"towtank/datapath/openflow"
	"towtank/sim/packet"
)

// group is a group with what choosing a bucket needs.
type group struct {
	g     *openflow.Group
	live  []uint32 // buckets with a weight
	total uint32
	picks []uint64
}

func newGroup(g *openflow.Group) *group {
	n := len(g.Buckets())
	x := &group{g: g, live: make([]uint32, 0, n), picks: make([]uint64, n)}
	for i := range g.Buckets() {
		if w := g.Buckets()[i].Weight; w > 0 {
			x.live = append(x.live, uint32(i))
			x.total += uint32(w)
		}
	}
	return x
}

func (r *run) group(id uint32, rl *rule, table uint8) {
	s := r.s
	g := s.groups[id]
	if g == nil {
		r.drop(s.tableName(table), cookieOf(rl), "group %d does not exist", id)
		return
	}
	if r.groupDepth++; r.groupDepth > maxDepth {
		r.abort(table, rl, "groups are nested too deep")
		return
	}
	defer func() { r.groupDepth-- }()
	switch g.g.Type() {
	case openflow.GroupSelect:
		r.selectBucket(g, rl, table)
	default:
		for i := range g.g.Buckets() {
			r.bucket(g, i, rl, table, "")
		}
	}
}

func (r *run) selectBucket(g *group, rl *rule, table uint8) {
	s := r.s
	id := g.g.ID()
	if len(g.live) == 0 {
		r.drop(fmt.Sprintf("group %d", id), cookieOf(rl), "no bucket has a weight")
		return
	}
	var hash uint32
	if g.g.SelectionMethod() == "hash" && len(g.g.HashFields()) > 0 {
		hash = r.hashFields(g.g.HashFields())
	} else {
		if g.g.SelectionMethod() != "hash" && !r.recirculate(table, rl) { // the datapath computes the hash
			return
		}
		if g.g.SelectionMethod() != "hash" {
			r.recircs++
		}
		hash = r.hashFlow(g.g.SelectionMethod() == "dp_hash")
	}
	var pick int
	if s.cfg.PickBucket != nil {
		n := s.cfg.PickBucket(id, len(g.live), hash)
		if n < 0 || n >= len(g.live) {
			r.drop(fmt.Sprintf("group %d", id), cookieOf(rl), "PickBucket chose %d of %d buckets", n, len(g.live))
			return
		}
		pick = int(g.live[n])
	} else {
		pick = g.pick(hash)
	}
	r.bucket(g, pick, rl, table, fmt.Sprintf(" of %d", len(g.live)))
}

// pick chooses a bucket by hash and weight. selection_method=hash mixes the bucket's id into the hash, as
// OVS does: so two levels of groups choose independently of each other.
func (g *group) pick(hash uint32) int {
	buckets := g.g.Buckets()
	if g.g.SelectionMethod() != "hash" {
		at := hash % g.total
		for _, i := range g.live {
			w := uint32(buckets[i].Weight)
			if at < w {
				return int(i)
			}
			at -= w
		}
	}
	best, bestScore := g.live[0], uint64(0)
	for _, i := range g.live {
		score := uint64(finish(mix(uint64(hash), uint64(buckets[i].ID)))&0xffff) * uint64(buckets[i].Weight)
		if score > bestScore {
			best, bestScore = i, score
		}
	}
	return int(best)
}

// bucket runs the actions of a bucket; what they change is undone after it, as OVS does.
func (r *run) bucket(g *group, i int, rl *rule, table uint8, of string) {
	b := &g.g.Buckets()[i]
	g.picks[i]++
	if r.s.tracer != nil {
		r.s.step(fmt.Sprintf("group %d", g.g.ID()), fmt.Sprintf("bucket %d%s: %s", b.ID, of, openflow.ActionsText(b.Actions)), cookieOf(rl), false)
	}
	k, inner, ct := r.k, r.inner, r.ct
	r.actions(actionSet(b.Actions), rl, table)
	r.k, r.inner, r.ct = k, inner, ct
}

// hashFlow is the hash of OVS's datapath over addresses, protocol and ports. Without
// selection_method=dp_hash OVS leaves UDP ports out.
func (r *run) hashFlow(udp bool) uint32 {
	k := &r.k
	h := mix(hashInit, r.s.cfg.HashSeed)
	h = mix(h, uint64(k.ethType())<<8|uint64(k.proto()))
	if k.ethType() == packet.EthIPv6 {
		for w := wIPv6Src; w < wIPv6Dst+2; w++ {
			h = mix(h, k[w])
		}
	} else {
		h = mix(h, k[wIPv4])
	}
	switch p := k.proto(); {
	case p == packet.ProtoTCP || p == packet.ProtoSCTP || p == packet.ProtoUDP && udp:
		h = mix(h, k[wL4]>>32)
	}
	return finish(h)
}

// hashFields is the hash of selection_method=hash: over those of the fields that the packet has.
func (r *run) hashFields(fields []openflow.Field) uint32 {
	k := &r.k
	h := mix(hashInit, r.s.cfg.HashSeed)
	for _, f := range fields {
		if !k.has(f) {
			continue
		}
		v := k.val(f)
		h = mix(mix(mix(h, uint64(f)), v.Hi), v.Lo)
	}
	return finish(h)
}

func finish(h uint64) uint32 {
	h ^= h >> 29
	h *= 0xc4ceb9fe1a85ec53
	return uint32(h >> 32)
}

// has reports whether the packet has the header that the field is of.
func (k *key) has(f openflow.Field) bool {
	ip, p := k.isIP(), k.proto()
	switch f {
	case openflow.IPSrc, openflow.IPDst:
		return k.ethType() == packet.EthIPv4
	case openflow.IPv6Src, openflow.IPv6Dst:
		return k.ethType() == packet.EthIPv6
	case openflow.IPProto, openflow.IPTOS, openflow.IPTTL, openflow.IPFrag, openflow.IPDSCP, openflow.IPECN:
		return ip
	case openflow.TCPSrc, openflow.TCPDst, openflow.TCPFlags:
		return ip && p == packet.ProtoTCP
	case openflow.UDPSrc, openflow.UDPDst:
		return ip && p == packet.ProtoUDP
	case openflow.SCTPSrc, openflow.SCTPDst:
		return ip && p == packet.ProtoSCTP
	case openflow.ICMPType, openflow.ICMPCode:
		return k.ethType() == packet.EthIPv4 && p == packet.ProtoICMP
	case openflow.ICMPv6Type, openflow.ICMPv6Code, openflow.NDTarget, openflow.NDSLL, openflow.NDTLL:
		return k.ethType() == packet.EthIPv6 && p == packet.ProtoICMPv6
	case openflow.ARPOp, openflow.ARPSPA, openflow.ARPTPA, openflow.ARPSHA, openflow.ARPTHA:
		return k.ethType() == packet.EthARP
	}
	return true
}
