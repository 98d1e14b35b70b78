// Package pods wires containers: CNI requests become sandboxes, sandboxes become a link, a port and
// flows, and a request is answered when that is realised.
package pods

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/datapath/openflow"
	"towtank/datapath/ovsdb"
)

// external_ids of a sandbox's port: what a sandbox is rebuilt from after a restart.
const (
	idType      = "towtank-type"
	idContainer = "towtank-container-id"
	idIfname    = "towtank-ifname"
	idPod       = "towtank-pod"
	idNamespace = "towtank-namespace"
	idMAC       = "towtank-mac"
	idIPs       = "towtank-ips"
	idNetns     = "towtank-netns"
	idAge       = "towtank-age"
	typeSandbox = "sandbox"
)

// Pods is the concern.
type Pods struct {
	env *tables.Env
	// calls are the CNI calls of an attachment, in order; only the first one runs.
	calls map[edge.Attachment][]*call
	// leaving are sandboxes that were taken out and still have objects.
	leaving  map[string]*tables.Sandbox
	late     map[string]*lateness // by unit
	toldLate map[string]bool      // Pods of which an Event says that they are not connected
	guarded  map[string]bool      // units rendered with a guard
	lastAge  int64
	early    []*early // GCs before what is on the node was read
	lastCall int
	tidied   bool // sandboxes of Pods that went while the agent was away were looked for
}

// New returns the concern.
func New(env *tables.Env) *Pods {
	return &Pods{env: env, calls: map[edge.Attachment][]*call{}, leaving: map[string]*tables.Sandbox{}, late: map[string]*lateness{}, toldLate: map[string]bool{}, guarded: map[string]bool{}}
}

// Kinds implements tables.Concern.
func (p *Pods) Kinds() []string { return []string{"sandbox"} }

// Ready implements tables.Concern. Pods need not be synced to wire one: what it needs of its Pod, its
// ADD waits for.
func (p *Pods) Ready(string) bool {
	return p.env.AllSynced(edge.KindPod, tables.FactPorts, tables.FactLinks)
}

// Restore implements tables.Concern: sandboxes are rebuilt from the ports. A port whose link is gone
// (the node was booted) belongs to no sandbox any more.
func (p *Pods) Restore(dump []datapath.Object) {
	links := map[string]host.Link{}
	flows := map[uint64][]datapath.Object{}
	for _, o := range dump {
		switch t := o.(type) {
		case host.Link:
			links[t.Name] = t
		case *openflow.Flow:
			if t.Cookie()>>56 == pipeline.CookieSandbox {
				flows[t.Cookie()] = append(flows[t.Cookie()], t)
			}
		}
	}
	for _, o := range dump {
		port, ok := o.(*ovsdb.Port)
		if !ok || port.ExternalID(idType) != typeSandbox {
			continue
		}
		link, ok := links[port.Name()]
		if !ok {
			continue
		}
		s := sandboxOf(port)
		if s == nil {
			continue
		}
		p.lastAge = max(p.lastAge, s.Age)
		p.env.PutSandbox(s)
		// What is there is the sandbox's from the start: if its DEL comes before it is rendered, that is
		// what has to go.
		p.env.Store.Set(s.Unit(), precedence(s), append(flows[pipeline.Cookie(pipeline.CookieSandbox, s.Unit())], port, link))
		p.env.Dirty(s.Unit())
		p.env.Dirty("podegress/" + s.PodKey())
	}
}

// precedence says that of two sandboxes with one address the newer one is the Pod.
func precedence(s *tables.Sandbox) datapath.Precedence { return datapath.Precedence{Age: -s.Age} }

// sandboxOf reads a sandbox from its port; nil if the port's external_ids are not whole.
func sandboxOf(port *ovsdb.Port) *tables.Sandbox {
	s := &tables.Sandbox{
		Attachment:   edge.Attachment{ContainerID: port.ExternalID(idContainer), Ifname: port.ExternalID(idIfname)},
		PodNamespace: port.ExternalID(idNamespace), PodName: port.ExternalID(idPod),
		Netns: port.ExternalID(idNetns), HostIf: port.Name(), MAC: port.ExternalID(idMAC),
	}
	if _, err := openflow.ParseMAC(s.MAC); err != nil || s.ContainerID == "" || s.Ifname == "" {
		return nil
	}
	for _, t := range strings.Fields(port.ExternalID(idIPs)) {
		ip, err := netip.ParsePrefix(t)
		if err != nil {
			return nil
		}
		s.IPs = append(s.IPs, ip)
	}
	for _, c := range port.ExternalID(idAge) {
		if c < '0' || c > '9' {
			return nil
		}
		s.Age = s.Age*10 + int64(c-'0')
	}
	return s
}

// Handle implements tables.Concern.
func (p *Pods) Handle(ev any, _ runtime.Object) {
	switch e := ev.(type) {
	case datapath.PortEvent:
		for _, u := range p.unitsOfPort(e.Name) {
			p.env.Dirty(u)
		}
		if e.Name == pipeline.GatewayPort || e.Name == pipeline.TunnelPort {
			p.all()
		}
	case edge.SyncedEvent:
		p.all()
	case edge.ObjectEvent:
		if e.Kind == edge.KindPod && e.Object == nil {
			delete(p.toldLate, e.Key)
		}
	}
	p.unguard()
}

// Advance moves the CNI calls on, at the end of every turn.
func (p *Pods) Advance() {
	p.tidy()
	p.advanceAll()
}

func (p *Pods) unitsOfPort(name string) []string {
	var units []string
	for u, s := range p.env.Sandboxes {
		if s.HostIf == name {
			units = append(units, u)
		}
	}
	slices.Sort(units)
	return units
}

func (p *Pods) all() {
	//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
	for u := range p.env.Sandboxes {
		p.env.Dirty(u)
	}
}

// tidy runs once, when the Pods of the node are known: sandboxes whose Pod is gone are taken out, and
// addresses that nobody has are freed. What a Pod's status says is kept too: its ADD may have been
// answered by a process that was killed before the port was written.
func (p *Pods) tidy() {
	if p.tidied || !p.Ready("") || !p.env.Restored() {
		return
	}
	p.tidied = true
	keep := []edge.Attachment{}
	for _, key := range p.env.PodsWithSandbox() {
		for _, s := range p.env.SandboxesOf(key) {
			if p.env.Pods[key] == nil {
				p.takeOut(s)
				p.env.IPAM.Del(s.Attachment, p.logError("Freeing the address of a Pod that is gone failed", s.Unit()))
				continue
			}
			keep = append(keep, s.Attachment)
		}
	}
	for a := range p.calls {
		keep = append(keep, a)
	}
	slices.SortFunc(keep, func(a, b edge.Attachment) int { return strings.Compare(tables.SandboxUnit(a), tables.SandboxUnit(b)) })
	p.env.IPAM.GC(keep, p.statusIPs(), p.logError("Freeing unused addresses failed", ""))
}

func (p *Pods) logError(msg, unit string) func(error) {
	return func(err error) {
		if err != nil {
			p.env.Log.Error(err, msg, "unit", unit)
		}
	}
}

// statusIPs returns the addresses in the status of Pods that still run.
func (p *Pods) statusIPs() []netip.Addr {
	var ips []netip.Addr
	for _, pod := range p.env.Pods {
		if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, i := range pod.Status.PodIPs {
			if ip, err := netip.ParseAddr(i.IP); err == nil {
				ips = append(ips, ip)
			}
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return ips
}

// takeOut makes a sandbox want nothing.
func (p *Pods) takeOut(s *tables.Sandbox) {
	p.leaving[s.Unit()] = s
	delete(p.guarded, s.Unit())
	p.env.DropSandbox(s.Unit())
	p.env.Dirty(s.Unit())
	p.env.Dirty("podegress/" + s.PodKey())
	p.notLate(s.Unit())
}

// Render implements tables.Concern.
func (p *Pods) Render(unit string) ([]datapath.Object, datapath.Precedence) {
	s := p.env.Sandboxes[unit]
	if s == nil {
		return nil, datapath.Precedence{}
	}
	l := &pipeline.List{}
	mac, err := openflow.ParseMAC(s.MAC)
	if err != nil {
		p.env.Log.Error(err, "Sandbox has no MAC address", "unit", unit)
		return nil, datapath.Precedence{}
	}
	p.link(l, s, host.MAC(mac))
	p.port(l, s)
	n := pipeline.Of(p.env.Tables)
	if of := p.env.OFPort(s.HostIf); of != 0 && n.Ready() {
		n.Sandbox(l, unit, of, mac, s.IPs)
		p.guard(l, s, of)
		p.arrived(unit)
	} else {
		p.mayBeLate(unit)
	}
	if err := l.Err(); err != nil {
		p.env.Log.Error(err, "Sandbox cannot be rendered whole", "unit", unit)
	}
	return l.Objects(), precedence(s)
}

func (p *Pods) link(l *pipeline.List, s *tables.Sandbox, mac host.MAC) {
	peer, err := host.NewPeer(host.Peer{
		Netns: s.Netns, Name: s.Ifname, MAC: mac, MTU: p.env.Cfg.MTU, Addresses: s.IPs, Gateways: p.gateways(s.IPs),
	})
	if err != nil {
		pipeline.Add(l, host.Link{}, err)
		return
	}
	link, err := host.NewLink(host.Link{
		Name: s.HostIf, Type: host.LinkVeth, MTU: p.env.Cfg.MTU, Alias: host.AliasPrefix + s.ContainerID + "/" + s.Ifname,
		Guard: p.env.Features.Datapath != "system", Peer: peer.String(),
	})
	pipeline.Add(l, link, err)
}

func (p *Pods) gateways(ips []netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for _, ip := range ips {
		if gw, ok := p.env.Cfg.Gateway(ip.Addr().Is6()); ok {
			out = append(out, gw)
		}
	}
	return out
}

func (p *Pods) port(l *pipeline.List, s *tables.Sandbox) {
	ips := make([]string, len(s.IPs))
	for i, ip := range s.IPs {
		ips[i] = ip.String()
	}
	port, err := ovsdb.NewPort(ovsdb.PortSpec{
		Name: s.HostIf,
		ExternalIDs: map[string]string{
			idType: typeSandbox, idContainer: s.ContainerID, idIfname: s.Ifname, idPod: s.PodName, idNamespace: s.PodNamespace,
			idMAC: s.MAC, idIPs: strings.Join(ips, " "), idNetns: s.Netns, idAge: decimal(s.Age),
		},
	})
	pipeline.Add(l, port, err)
}

func decimal(n int64) string {
	b := []byte{}
	for ; n > 0 || len(b) == 0; n /= 10 {
		b = append(b, byte('0'+n%10))
	}
	slices.Reverse(b)
	return string(b)
}

// Realised implements tables.Concern.
func (p *Pods) Realised(unit string) {
	if s := p.leaving[unit]; s != nil && p.env.Sandboxes[unit] == nil && !p.env.Store.Has(unit) {
		delete(p.leaving, unit)
	}
}

// Refused implements tables.Concern.
func (p *Pods) Refused(unit string, err error) {
	for _, a := range p.active() {
		if tables.SandboxUnit(a) == unit {
			p.calls[a][0].refused(err)
		}
	}
}

// networkReady reports whether the node can take Pods: what every Pod needs is there.
func (p *Pods) networkReady() bool {
	return p.Ready("") && p.env.Store.Has(tables.HostUnit) && p.env.Store.Realised(tables.HostUnit) && pipeline.Ready(p.env.Tables)
}
