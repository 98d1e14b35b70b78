// Package egress gives selected Pods their source address outside the cluster. Its units are the
// Egress IPs that this node holds or is to hold (egressip/<IP>) and the Pods of this node
// (podegress/<namespace>/<name>).
package egress

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/datapath/openflow"
)

// Egress is the concern.
type Egress struct {
	env *tables.Env

	// placements and holders follow from the tables; they are computed once a turn if stale.
	stale      bool
	placements map[string]Placement    // by Egress, of those with a pool
	holders    map[netip.Addr][]string // names of the Egresses of an address, the oldest first
	sorted     []*v1beta1.Egress
	selectors  map[string]*selector
	podsDue    map[string]bool // Pods to look at again in Prepare; "*" for all
	marksSeen  uint64          // the Store's Answers when marks that were given back were looked at last

	// announced are own Egress IPs by the link on which each was announced last, or was at the start.
	announced map[netip.Addr]string
	// found are those that were there at the start: whether the neighbours know is not known.
	found    map[netip.Addr]bool
	source   map[string]sources // of a Pod, as last realised and as last rendered
	remote   *tables.Resolver
	since    time.Time       // when the agent started
	alive    []string        // members at the last event
	lost     map[string]bool // members that went and did not come back
	restored map[string]bool // Pods that an earlier process wired, until they are realised
	lookDue  bool            // such a Pod was realised: its connections may be those of another source
	status   *statusWriter
	subnets  *subnets
	conns    *tables.KernelConntrack
}

// New returns the concern.
func New(env *tables.Env) *Egress {
	e := &Egress{
		env: env, since: env.Clock.Now(), stale: true, placements: map[string]Placement{}, holders: map[netip.Addr][]string{}, selectors: map[string]*selector{},
		podsDue: map[string]bool{}, announced: map[netip.Addr]string{}, found: map[netip.Addr]bool{}, source: map[string]sources{}, remote: tables.NewResolver(env), lost: map[string]bool{}, restored: map[string]bool{},
	}
	e.status = newStatusWriter(e)
	e.subnets = newSubnets()
	e.conns = tables.NewKernelConntrack(env, e.staleConns)
	return e
}

// Kinds implements tables.Concern.
func (e *Egress) Kinds() []string { return []string{"egressip", "podegress"} }

// Ready implements tables.Concern: nothing is enforced before everything that decides it was heard.
func (e *Egress) Ready(string) bool {
	return e.podReady() && e.env.AllSynced(edge.KindPod)
}

// podReady is Ready less the Pods: a Pod that is being added is known by its ADD.
func (e *Egress) podReady() bool {
	return e.env.AllSynced(e.env.Cfg.EgressKinds()...) && e.env.AllSynced(edge.KindNode, tables.FactAddresses, tables.FactPorts) &&
		e.env.HeardOf && pipeline.Ready(e.env.Tables)
}

// Restore implements tables.Concern: marks are read from the rules that use them, and addresses that
// are there need no announcement.
func (e *Egress) Restore(dump []datapath.Object) {
	flows := map[uint64][]datapath.Object{}
	for _, o := range dump {
		if t, ok := o.(host.IPTables); ok {
			if ip, mark, ok := pipeline.EgressMarkOf(t); ok {
				e.env.Marks.Adopt(ip, mark)
			}
		}
	}
	for _, o := range dump {
		switch t := o.(type) {
		case host.Rule:
			if ip, ok := e.env.Marks.IP(uint8(t.FwMark)); ok && t.FwMask == pipeline.MarkMask {
				e.subnets.adopt(ip, t.Table)
			}
		case *openflow.Flow:
			if t.Cookie()>>56 == pipeline.CookiePodEgress {
				flows[t.Cookie()] = append(flows[t.Cookie()], t)
			}
		case host.Address:
			e.announced[t.Prefix.Addr()], e.found[t.Prefix.Addr()] = t.Link, true
		}
	}
	for _, ip := range e.env.Marks.All() {
		e.env.Dirty(unitOfIP(ip))
	}
	for _, key := range e.env.PodsWithSandbox() {
		unit := "podegress/" + key
		e.restored[key] = true
		if list := flows[pipeline.Cookie(pipeline.CookiePodEgress, unit)]; len(list) > 0 {
			// What is there is wanted until more is known: if the switch starts anew before, it comes back
			// with the Pod's other flows.
			e.env.Store.Set(unit, datapath.Precedence{}, list)
		}
	}
}

func unitOfIP(ip netip.Addr) string { return "egressip/" + ip.String() }

// Handle implements tables.Concern.
func (e *Egress) Handle(ev any, old runtime.Object) {
	switch t := ev.(type) {
	case edge.ObjectEvent:
		e.objectChanged(t, old)
	case edge.SyncedEvent:
		e.invalidate("*")
	case datapath.DisconnectEvent:
		if t.Connected {
			e.remote.Again()
		}
	case edge.MembersEvent:
		e.stale = true
		e.membersChanged(t.Alive)
	case datapath.AddressEvent:
		if t.Present && !e.env.Synced[tables.FactAddresses] {
			e.announced[t.Addr], e.found[t.Addr] = t.Link, true // there before this process
		}
		if len(e.env.Addresses[t.Addr]) == 0 {
			delete(e.announced, t.Addr)
			delete(e.found, t.Addr)
		}
		if e.status.uses(t.Addr) || len(e.holders[t.Addr]) > 0 {
			e.status.epoch++
			e.env.Dirty(unitOfIP(t.Addr))
			e.podsOf(t.Addr)
			e.status.addressChanged(t.Addr)
		}
	case datapath.PortEvent:
		if t.Name == pipeline.GatewayPort || t.Name == pipeline.TunnelPort {
			//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
			for ip := range e.holders {
				e.env.Dirty(unitOfIP(ip))
			}
			e.invalidate("*")
			return
		}
		//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
		for _, s := range e.env.Sandboxes {
			if s.HostIf == t.Name {
				e.env.Dirty("podegress/" + s.PodKey())
			}
		}
	}
}

func (e *Egress) objectChanged(t edge.ObjectEvent, old runtime.Object) {
	switch t.Kind {
	case edge.KindEgress:
		o, _ := old.(*v1beta1.Egress)
		cur := e.env.Egresses[t.Key]
		delete(e.selectors, t.Key)
		if o != nil && cur != nil && sameEgress(o, cur) {
			// Only the status is another one: that of the writer, or of a node that took over.
			e.status.changed(t.Key)
			if o.Status.EgressNode != cur.Status.EgressNode {
				e.holderChanged(t.Key)
			}
			return
		}
		e.stale = true
		if !sameBandwidth(bandwidthOf(o), bandwidthOf(cur)) {
			// Nobody else need hold the address for that, but its meter is another one. An Egress that was made anew may get
			// the address of the old one in the same turn.
			for _, eg := range []*v1beta1.Egress{o, cur} {
				if eg == nil {
					continue
				}
				if ip, ok := e.effectiveIP(eg); ok {
					e.env.Dirty(unitOfIP(ip))
				}
			}
		}
		e.podsSelected(o)
		e.podsSelected(cur)
		e.status.changed(t.Key)
	case edge.KindExternalIPPool:
		e.stale = true
		e.subnetChanged(t.Key, old)
	case edge.KindEgressGroup:
		o, _ := old.(*v1beta1.EgressGroup)
		e.groupChanged(o, e.env.EgressGroups[t.Key])
	case edge.KindNode:
		o, _ := old.(*corev1.Node)
		if cur := e.env.Nodes[t.Key]; o == nil || cur == nil || !mapsEqual(o.Labels, cur.Labels) ||
			o.Annotations[maxIPsAnnotation] != cur.Annotations[maxIPsAnnotation] {
			e.stale = true
		}
	case edge.KindPod:
		o, _ := old.(*corev1.Pod)
		if cur := e.env.Pods[t.Key]; o != nil && cur != nil && mapsEqual(o.Labels, cur.Labels) && finished(o) == finished(cur) {
			return
		}
		e.env.Dirty("podegress/" + t.Key)
	case edge.KindNamespace:
		for _, key := range e.env.PodsWithSandbox() {
			if strings.HasPrefix(key, t.Key+"/") {
				e.env.Dirty("podegress/" + key)
			}
		}
	}
}

// sameEgress reports whether two versions differ in their status at most.
func sameEgress(a, b *v1beta1.Egress) bool {
	return a.UID == b.UID && a.Generation == b.Generation && a.Generation != 0
}

func bandwidthOf(eg *v1beta1.Egress) *v1beta1.Bandwidth {
	if eg == nil {
		return nil
	}
	return eg.Spec.Bandwidth
}

func sameBandwidth(a, b *v1beta1.Bandwidth) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func (e *Egress) invalidate(pod string) {
	e.stale = true
	e.podsDue[pod] = true
}

// groupChanged marks the Pods of this node that came into a group, left it, or are in one whose Egress is another now.
func (e *Egress) groupChanged(old, cur *v1beta1.EgressGroup) {
	for _, g := range []*v1beta1.EgressGroup{old, cur} {
		if g == nil {
			continue
		}
		for _, m := range g.GroupMembers {
			if key := m.Pod.Namespace + "/" + m.Pod.Name; len(e.env.SandboxesOf(key)) > 0 {
				e.env.Dirty("podegress/" + key)
			}
		}
	}
}

// podsSelected marks the Pods of this node that an Egress selects.
func (e *Egress) podsSelected(eg *v1beta1.Egress) {
	if eg == nil {
		return
	}
	sel := newSelector(eg)
	for _, key := range e.env.PodsWithSandbox() {
		if e.selects(eg, sel, key) != notSelected {
			e.env.Dirty("podegress/" + key)
		}
	}
}

// podsOf marks the Pods whose source an address may be.
func (e *Egress) podsOf(ip netip.Addr) {
	for _, name := range e.holders[ip] {
		e.podsSelected(e.env.Egresses[name])
	}
}

// Prepare brings schedule and index in line with the tables, before anything is rendered.
func (e *Egress) Prepare() {
	if !e.podReady() {
		return
	}
	if e.podsDue["*"] {
		for _, key := range e.env.PodsWithSandbox() {
			e.env.Dirty("podegress/" + key)
		}
	}
	clear(e.podsDue)
	for _, ip := range e.env.Marks.TakeRetry() {
		e.env.Dirty(unitOfIP(ip))
		e.podsOf(ip)
	}
	if e.stale {
		e.stale = false
		e.place()
	}
	e.status.look()
}

// place computes who holds which address, and marks what follows from a change.
func (e *Egress) place() {
	e.status.epoch++
	old, oldHolders := e.placements, e.holders
	e.placements = schedule(e.env.Tables)
	e.sorted = sortedEgresses(e.env.Tables)
	e.holders = map[netip.Addr][]string{}
	for _, eg := range e.sorted {
		if ip, ok := e.effectiveIP(eg); ok {
			e.holders[ip] = append(e.holders[ip], eg.Name)
		}
	}
	//determinism:ignore marks units and statuses, which are looked at in the order of their names
	for name, p := range e.placements {
		if old[name] != p {
			e.placementChanged(name, old[name], p)
		}
	}
	//determinism:ignore marks units and statuses, which are looked at in the order of their names
	for name, p := range old {
		if _, ok := e.placements[name]; !ok {
			e.placementChanged(name, p, Placement{})
		}
	}
	for _, set := range []map[netip.Addr][]string{oldHolders, e.holders} {
		//determinism:ignore marks units and statuses, which are looked at in the order of their names
		for ip := range set {
			if !slices.Equal(oldHolders[ip], e.holders[ip]) {
				e.env.Dirty(unitOfIP(ip))
				e.status.addressChanged(ip)
			}
		}
	}
}

func (e *Egress) placementChanged(name string, old, cur Placement) {
	for _, p := range []Placement{old, cur} {
		if p.IP.IsValid() {
			e.env.Dirty(unitOfIP(p.IP))
		}
	}
	e.podsSelected(e.env.Egresses[name])
	e.status.changed(name)
}

// effectiveIP returns the address that an Egress gives its Pods, false if it gives none: it names no
// address, or no node can hold the one it got from its pool.
func (e *Egress) effectiveIP(eg *v1beta1.Egress) (netip.Addr, bool) {
	if eg.Spec.ExternalIPPool != "" {
		p := e.placements[eg.Name]
		return p.IP, p.Node != ""
	}
	ip, err := netip.ParseAddr(eg.Spec.EgressIP)
	return ip, err == nil
}

// fromPool reports whether any Egress has the address from a pool, and the node that is to hold it.
func (e *Egress) fromPool(ip netip.Addr) (node string, pool bool) {
	for _, name := range e.holders[ip] {
		if p, ok := e.placements[name]; ok && p.IP == ip {
			return p.Node, true
		}
	}
	return "", false
}

// isLocal reports whether this node realises an address: it has it, and for an address from a pool it
// is the one that is to have it.
func (e *Egress) isLocal(ip netip.Addr) bool {
	if len(e.env.Addresses[ip]) == 0 || len(e.holders[ip]) == 0 {
		return false
	}
	node, pool := e.fromPool(ip)
	return !pool || node == e.env.Cfg.NodeName
}

// isOurs reports whether this node is the one to realise an address: it does, or is to have it.
func (e *Egress) isOurs(ip netip.Addr) bool {
	node, pool := e.fromPool(ip)
	return pool && node == e.env.Cfg.NodeName || e.isLocal(ip)
}

// Render implements tables.Concern.
func (e *Egress) Render(unit string) ([]datapath.Object, datapath.Precedence) {
	l := &pipeline.List{}
	if text, ok := strings.CutPrefix(unit, "egressip/"); ok {
		if ip, err := netip.ParseAddr(text); err == nil {
			e.renderIP(l, unit, ip)
		}
	} else {
		e.renderPod(l, unit, strings.TrimPrefix(unit, "podegress/"))
	}
	if err := l.Err(); err != nil {
		e.env.Log.Error(err, "Egress cannot be rendered whole", "unit", unit)
	}
	return l.Objects(), datapath.Precedence{}
}

// Advance is called at the end of every turn of the loop.
func (e *Egress) Advance() {
	e.settleMarks()
	if e.lookDue {
		e.lookDue = false
		e.conns.Look()
	}
}

// Realised implements tables.Concern.
func (e *Egress) Realised(unit string) {
	if text, ok := strings.CutPrefix(unit, "egressip/"); ok {
		if ip, err := netip.ParseAddr(text); err == nil {
			e.realisedIP(unit, ip)
		}
		return
	}
	e.realisedPod(strings.TrimPrefix(unit, "podegress/"))
}

// Refused implements tables.Concern.
func (e *Egress) Refused(unit string, err error) {
	if text, ok := strings.CutPrefix(unit, "egressip/"); ok {
		if ip, perr := netip.ParseAddr(text); perr == nil {
			e.status.problem(ip, err)
		}
	}
}
