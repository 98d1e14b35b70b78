// Package tables is the agent's memory: the objects that the API told of, the facts that were
// observed, and the identifiers that were given out. Concerns meet here and in the Store; none of
// them keeps a copy of what another one knows. Only event handlers write.
package tables

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/config"
	"towtank/agent/edge"
	"towtank/datapath"
)

// Tables is everything the agent knows about the world.
type Tables struct {
	Cfg *config.Config

	// Objects, by namespace/name or name.
	Services   map[string]*corev1.Service
	Slices     map[string]map[string]*discoveryv1.EndpointSlice // by Service, then by slice
	sliceOwner map[string]string                                // Service of each slice
	Nodes      map[string]*corev1.Node
	Pods       map[string]*corev1.Pod // of this node
	Namespaces map[string]*corev1.Namespace
	Egresses   map[string]*v1beta1.Egress
	Pools      map[string]*v1beta1.ExternalIPPool
	// EgressGroups are by Egress; there are some with membership=egressgroup only.
	EgressGroups map[string]*v1beta1.EgressGroup
	Synced       map[string]bool // by kind

	// Facts.
	Features  datapath.Features
	Ports     map[string]datapath.PortEvent // ports of the bridge that have a number
	Links     map[string]datapath.LinkEvent // links of the node
	Addresses map[netip.Addr][]string       // addresses of the node, and the links they are on
	Alive     []string                      // members, sorted, this node included
	HeardOf   bool                          // a member event has arrived after the peers were tried

	// Sandboxes by unit name.
	Sandboxes map[string]*Sandbox
	byPod     map[string][]*Sandbox

	Groups *Groups
	Marks  *Marks

	// moreNodePorts are addresses of NodePorts that the Node object need not name; nodePortsChanged is of the last event.
	moreNodePorts    []netip.Addr
	nodePortsChanged bool
	// leaving are addresses of the node that were Egress IPs of a pool, and that it has not let go of yet.
	leaving map[netip.Addr]bool
}

// New returns empty tables.
func New(cfg *config.Config) *Tables {
	return &Tables{
		Cfg:      cfg,
		Services: map[string]*corev1.Service{}, Slices: map[string]map[string]*discoveryv1.EndpointSlice{},
		sliceOwner: map[string]string{},
		Nodes:      map[string]*corev1.Node{}, Pods: map[string]*corev1.Pod{}, Namespaces: map[string]*corev1.Namespace{},
		Egresses: map[string]*v1beta1.Egress{}, Pools: map[string]*v1beta1.ExternalIPPool{}, EgressGroups: map[string]*v1beta1.EgressGroup{}, Synced: map[string]bool{}, leaving: map[netip.Addr]bool{},
		Ports: map[string]datapath.PortEvent{}, Links: map[string]datapath.LinkEvent{}, Addresses: map[netip.Addr][]string{},
		Sandboxes: map[string]*Sandbox{}, byPod: map[string][]*Sandbox{},
		Groups: NewGroups(), Marks: NewMarks(cfg.MaxMarks()),
	}
}

// Sandbox is one interface of one container: what was asked for and what was given.
type Sandbox struct {
	edge.Attachment
	PodNamespace, PodName string
	Netns                 string
	HostIf                string // host end of the veth, and name of the port
	MAC                   string
	IPs                   []netip.Prefix
	Age                   int64 // order of ADD on this node; the highest is the newest
}

// Unit returns the sandbox's unit.
func (s *Sandbox) Unit() string { return SandboxUnit(s.Attachment) }

// PodKey returns the namespace/name of the Pod.
func (s *Sandbox) PodKey() string { return s.PodNamespace + "/" + s.PodName }

// SandboxUnit returns the unit of an attachment.
func SandboxUnit(a edge.Attachment) string { return "sandbox/" + a.ContainerID + "/" + a.Ifname }

// PutSandbox records a sandbox.
func (t *Tables) PutSandbox(s *Sandbox) {
	t.DropSandbox(s.Unit())
	t.Sandboxes[s.Unit()] = s
	list := append(t.byPod[s.PodKey()], s)
	slices.SortFunc(list, func(a, b *Sandbox) int { return cmp.Compare(b.Age, a.Age) })
	t.byPod[s.PodKey()] = list
}

// DropSandbox forgets a sandbox.
func (t *Tables) DropSandbox(unit string) {
	s := t.Sandboxes[unit]
	if s == nil {
		return
	}
	delete(t.Sandboxes, unit)
	list := slices.DeleteFunc(slices.Clone(t.byPod[s.PodKey()]), func(o *Sandbox) bool { return o == s })
	if len(list) == 0 {
		delete(t.byPod, s.PodKey())
		return
	}
	t.byPod[s.PodKey()] = list
}

// SandboxesOf returns the sandboxes of a Pod, the newest first.
func (t *Tables) SandboxesOf(pod string) []*Sandbox { return t.byPod[pod] }

// PodsWithSandbox returns the keys of all Pods that have a sandbox, sorted.
func (t *Tables) PodsWithSandbox() []string {
	keys := make([]string, 0, len(t.byPod))
	for k := range t.byPod {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// OFPort returns the number of a port that is up, or 0.
func (t *Tables) OFPort(name string) uint32 { return t.Ports[name].OFPort }

// ServiceOfSlice returns the key of the Service that a slice belongs to, "" if none. Slices of headless Services are for
// nobody who proxies, as for kube-proxy.
func ServiceOfSlice(s *discoveryv1.EndpointSlice) string {
	n := s.Labels[discoveryv1.LabelServiceName]
	if _, headless := s.Labels[corev1.IsHeadlessService]; n == "" || headless {
		return ""
	}
	return s.Namespace + "/" + n
}

// ServiceOf returns the key of the Service that the slice with a key belongs to, "" if none.
func (t *Tables) ServiceOf(slice string) string { return t.sliceOwner[slice] }

// Apply records an event and returns, for an object that changed, its previous version.
func (t *Tables) Apply(ev any) (old runtime.Object) {
	old = t.apply(ev)
	t.nodePortsChanged = false
	if t.nodePortsMayChange(ev, old) {
		t.findNodePorts()
	}
	return old
}

func (t *Tables) apply(ev any) (old runtime.Object) {
	switch e := ev.(type) {
	case edge.ObjectEvent:
		return t.applyObject(e)
	case edge.SyncedEvent:
		t.Synced[e.Kind] = true
	case edge.MembersEvent:
		t.Alive, t.HeardOf = e.Alive, t.HeardOf || e.Joined
	case datapath.PortEvent:
		if e.OFPort == 0 {
			delete(t.Ports, e.Name)
		} else {
			t.Ports[e.Name] = e
		}
	case datapath.LinkEvent:
		if e.Present {
			t.Links[e.Name] = e
		} else {
			delete(t.Links, e.Name)
		}
	case datapath.AddressEvent:
		links := slices.DeleteFunc(slices.Clone(t.Addresses[e.Addr]), func(l string) bool { return l == e.Link })
		if e.Present {
			links = append(links, e.Link)
			slices.Sort(links)
		}
		if len(links) == 0 {
			delete(t.Addresses, e.Addr)
		} else {
			t.Addresses[e.Addr] = links
		}
	}
	return nil
}

func (t *Tables) applyObject(e edge.ObjectEvent) runtime.Object {
	switch e.Kind {
	case edge.KindService:
		return swap(t.Services, e)
	case edge.KindNode:
		return swap(t.Nodes, e)
	case edge.KindPod:
		return swap(t.Pods, e)
	case edge.KindNamespace:
		return swap(t.Namespaces, e)
	case edge.KindEgress:
		return swap(t.Egresses, e)
	case edge.KindExternalIPPool:
		return swap(t.Pools, e)
	case edge.KindEgressGroup:
		return swap(t.EgressGroups, e)
	case edge.KindEndpointSlice:
		return t.applySlice(e)
	}
	return nil
}

func swap[T any, P interface {
	*T
	runtime.Object
}](m map[string]P, e edge.ObjectEvent,
) runtime.Object {
	old := m[e.Key]
	if o, ok := e.Object.(P); ok && o != nil {
		m[e.Key] = o
	} else {
		delete(m, e.Key)
	}
	if old == nil {
		return nil
	}
	return old
}

func (t *Tables) applySlice(e edge.ObjectEvent) runtime.Object {
	cur, _ := e.Object.(*discoveryv1.EndpointSlice)
	svc := t.sliceOwner[e.Key]
	old := t.Slices[svc][e.Key]
	if old != nil && cur != nil && ServiceOfSlice(cur) == svc {
		t.Slices[svc][e.Key] = cur
		return old
	}
	if old != nil {
		delete(t.sliceOwner, e.Key)
		delete(t.Slices[svc], e.Key)
		if len(t.Slices[svc]) == 0 {
			delete(t.Slices, svc)
		}
	}
	if cur != nil {
		if svc := ServiceOfSlice(cur); svc != "" {
			if t.Slices[svc] == nil {
				t.Slices[svc] = map[string]*discoveryv1.EndpointSlice{}
			}
			t.Slices[svc][e.Key] = cur
			t.sliceOwner[e.Key] = svc
		}
	}
	if old == nil {
		return nil
	}
	return old
}

// AllSynced reports whether every one of the kinds is synced.
func (t *Tables) AllSynced(kinds ...string) bool {
	for _, k := range kinds {
		if !t.Synced[k] {
			return false
		}
	}
	return true
}

// ThisNode returns this node's object, nil if it is not known.
func (t *Tables) ThisNode() *corev1.Node { return t.Nodes[t.Cfg.NodeName] }

// EgressAddresses returns the addresses that an Egress has or is to have; none of nil.
func EgressAddresses(e *v1beta1.Egress) []netip.Addr {
	var out []netip.Addr
	if e == nil {
		return nil
	}
	for _, text := range []string{e.Spec.EgressIP, e.Status.EgressIP} {
		if ip, err := netip.ParseAddr(text); err == nil && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out
}

// NodeAddresses returns the node's InternalIP and ExternalIP addresses, as its status names them.
func NodeAddresses(n *corev1.Node) []netip.Addr {
	var out []netip.Addr
	if n == nil {
		return nil
	}
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

// NodeTransport returns the first InternalIP of the family.
func NodeTransport(n *corev1.Node, v6 bool) (netip.Addr, bool) {
	if n == nil {
		return netip.Addr{}, false
	}
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is6() == v6 {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// NodePodCIDRs returns the Pod CIDRs of a node.
func NodePodCIDRs(n *corev1.Node) []netip.Prefix {
	cidrs := n.Spec.PodCIDRs
	if len(cidrs) == 0 && n.Spec.PodCIDR != "" {
		cidrs = []string{n.Spec.PodCIDR}
	}
	var out []netip.Prefix
	for _, c := range cidrs {
		if p, err := netip.ParsePrefix(c); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// HostUnit is the unit of everything that the node needs before any object of the API.
const HostUnit = "host/node"
