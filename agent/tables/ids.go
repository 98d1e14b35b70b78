package tables

import (
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
)

// Groups gives out OpenFlow group ids. An id is the hash of its owner, so that it is the same after
// a restart and on every run; two owners that collide probe upwards. An owner whose flows already
// use an id keeps it.
type Groups struct {
	byOwner map[groupOwner]uint32
	byID    map[uint32]groupOwner
	byUnit  map[string][]string // roles that a unit has an id for
	// kept are ids that a dump showed in use, by the cookie of the flows that use them.
	kept map[uint32]uint64
	// cooling are freed ids, by who had them, and by the unit of that: given to nobody else before the unit is realised.
	cooling map[uint32]groupOwner
	freed   map[string][]uint32
}

// groupOwner is a unit and what it has a group for.
type groupOwner struct{ unit, role string }

// String returns unit#role. The id is a hash of it.
func (o groupOwner) String() string { return o.unit + "#" + o.role }

// NewGroups returns an empty allocator.
func NewGroups() *Groups {
	return &Groups{
		byOwner: map[groupOwner]uint32{}, byID: map[uint32]groupOwner{}, byUnit: map[string][]string{}, kept: map[uint32]uint64{},
		cooling: map[uint32]groupOwner{}, freed: map[string][]uint32{},
	}
}

// Keep reserves an id for the owner whose flows carry the cookie.
func (g *Groups) Keep(id uint32, cookie uint64) { g.kept[id] = cookie }

// Kept returns the cookie of the flows for which an id is reserved, 0 if it is not.
func (g *Groups) Kept(id uint32) uint64 { return g.kept[id] }

// groupIDMask keeps ids in the range that OpenFlow allows (OFPG_MAX is 0xffffff00) and positive.
const groupIDMask = 0x7fffffff

// ID returns the id of a unit's group in a role ("cluster", "local", …), giving one out if there is
// none. The cookie is that of the unit's flows.
func (g *Groups) ID(unit, role string, cookie uint64) uint32 {
	owner := groupOwner{unit, role}
	if id, ok := g.byOwner[owner]; ok {
		return id
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(owner.String()))
	first := h.Sum32() & groupIDMask
	id := first
	for range keptWithin {
		if c, ok := g.kept[id]; ok && c == cookie && g.byID[id] == (groupOwner{}) {
			return g.give(id, owner)
		}
		id = (id + 1) & groupIDMask
	}
	for id = first; ; id = (id + 1) & groupIDMask {
		if id == 0 || g.byID[id] != (groupOwner{}) || (g.cooling[id] != (groupOwner{}) && g.cooling[id] != owner) {
			continue
		}
		if c, ok := g.kept[id]; ok && c != cookie {
			continue
		}
		return g.give(id, owner)
	}
}

// keptWithin is how far from its hash an owner looks for an id that it had before.
const keptWithin = 16

func (g *Groups) give(id uint32, owner groupOwner) uint32 {
	delete(g.cooling, id)
	g.byOwner[owner], g.byID[id] = id, owner
	g.byUnit[owner.unit] = append(g.byUnit[owner.unit], owner.role)
	return id
}

// Free gives the id of a unit's group in a role back; it is given out again after Settled.
func (g *Groups) Free(unit, role string) {
	owner := groupOwner{unit, role}
	id, ok := g.byOwner[owner]
	if !ok {
		return
	}
	delete(g.byOwner, owner)
	delete(g.byID, id)
	delete(g.kept, id)
	g.cooling[id] = owner
	g.freed[unit] = append(g.freed[unit], id)
	roles := slices.DeleteFunc(g.byUnit[unit], func(r string) bool { return r == role })
	if len(roles) == 0 {
		delete(g.byUnit, unit)
		return
	}
	g.byUnit[unit] = roles
}

// FreeUnit gives all ids of a unit back.
func (g *Groups) FreeUnit(unit string) {
	for _, role := range slices.Clone(g.byUnit[unit]) {
		g.Free(unit, role)
	}
}

// Settled says that a unit is realised: no group or flow on the switch has an id that it gave back.
func (g *Groups) Settled(unit string) {
	for _, id := range g.freed[unit] {
		if g.cooling[id].unit == unit {
			delete(g.cooling, id)
		}
	}
	delete(g.freed, unit)
}

// Len returns the number of ids given out.
func (g *Groups) Len() int { return len(g.byOwner) }

// MarkBits is the part of the packet mark that names an Egress IP.
const MarkBits = 0xff

// Marks gives every local Egress IP a packet mark, the lowest free from 1 up.
type Marks struct {
	byIP    map[netip.Addr]uint8
	byMark  map[uint8]netip.Addr
	cooling map[uint8]bool
	limit   int
	// waiting are the IPs that got none; retry are those of them that may get one now.
	waiting, retry map[netip.Addr]bool
}

// NewMarks returns an empty allocator of at most limit marks.
func NewMarks(limit int) *Marks {
	return &Marks{byIP: map[netip.Addr]uint8{}, byMark: map[uint8]netip.Addr{}, cooling: map[uint8]bool{}, limit: limit, waiting: map[netip.Addr]bool{}}
}

// Adopt records a mark that is in use for an IP already.
func (m *Marks) Adopt(ip netip.Addr, mark uint8) {
	if mark == 0 || m.byIP[ip] != 0 || m.byMark[mark].IsValid() {
		return
	}
	m.byIP[ip], m.byMark[mark] = mark, ip
}

// Mark returns the mark of an IP, giving one out if it has none. The error says that all are used.
func (m *Marks) Mark(ip netip.Addr) (uint8, error) {
	if mark := m.byIP[ip]; mark != 0 {
		return mark, nil
	}
	for i := 1; i <= m.limit; i++ {
		mark := uint8(i)
		if m.byMark[mark].IsValid() || m.cooling[mark] {
			continue
		}
		m.byIP[ip], m.byMark[mark] = mark, ip
		delete(m.waiting, ip)
		return mark, nil
	}
	m.waiting[ip] = true
	return 0, fmt.Errorf("egress IP %s: all %d marks of this node are in use", ip, m.limit)
}

// Lookup returns the mark of an IP, 0 if it has none.
func (m *Marks) Lookup(ip netip.Addr) uint8 { return m.byIP[ip] }

// IP returns the IP of a mark.
func (m *Marks) IP(mark uint8) (netip.Addr, bool) { ip, ok := m.byMark[mark]; return ip, ok }

// Free gives the mark of an IP back; it is given out again after Settled.
func (m *Marks) Free(ip netip.Addr) {
	if mark := m.byIP[ip]; mark != 0 {
		delete(m.byIP, ip)
		delete(m.byMark, mark)
		m.cooling[mark] = true
	}
}

// Cooling reports whether marks were given back and wait for Settled.
func (m *Marks) Cooling() bool { return len(m.cooling) > 0 }

// Settled makes the marks that were given back usable, but for those that are still used: on the node something has
// them, and could not be changed yet.
func (m *Marks) Settled(used map[uint8]bool) {
	before := len(m.cooling)
	maps.DeleteFunc(m.cooling, func(mark uint8, _ bool) bool { return !used[mark] })
	if len(m.cooling) == before {
		return
	}
	//determinism:ignore each is only moved
	for ip := range m.waiting {
		if m.retry == nil {
			m.retry = map[netip.Addr]bool{}
		}
		m.retry[ip] = true
	}
	clear(m.waiting)
}

// Retry reports whether IPs that got no mark may get one now.
func (m *Marks) Retry() bool { return len(m.retry) > 0 }

// TakeRetry returns the IPs that got no mark and may get one now, sorted; they are forgotten.
func (m *Marks) TakeRetry() []netip.Addr {
	if len(m.retry) == 0 {
		return nil
	}
	ips := slices.SortedFunc(maps.Keys(m.retry), netip.Addr.Compare)
	m.retry = nil
	return ips
}

// All returns the IPs that have a mark, sorted.
func (m *Marks) All() []netip.Addr {
	var ips []netip.Addr
	for ip := range m.byIP {
		ips = append(ips, ip)
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return ips
}

// Owners returns all ids by owner, as unit#role.
func (g *Groups) Owners() map[string]uint32 {
	all := make(map[string]uint32, len(g.byOwner))
	//determinism:ignore owners have different texts: no key comes twice
	for o, id := range g.byOwner {
		all[o.String()] = id
	}
	return all
}
