package scenarios

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/internal/spelling"
	"towtank/scenarios/lang"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

// node finds a node by name, or as the one that holds an address now.
func (r *Runner) node(ref lang.NodeRef) (Node, error) {
	if !ref.Owner.IsValid() {
		if n := r.tank.Node(ref.Name); n != nil {
			return n, nil
		}
		return nil, callErrorf("node %q does not exist", ref.Name)
	}
	var found []Node
	for _, n := range r.tank.Nodes() {
		if n.Up() && n.HasAddress(ref.Owner) {
			found = append(found, n)
		}
	}
	if len(found) != 1 {
		var names []string
		for _, n := range found {
			names = append(names, n.Name())
		}
		return nil, fmt.Errorf("owner/%s: want exactly one node that holds the address, found %d%s", ref.Owner, len(found), among(names))
	}
	return found[0], nil
}

// among returns names as the end of a sentence that counted them.
func among(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ")
}

// nodesOf finds one node, or all for *.
func (r *Runner) nodesOf(ref lang.NodeRef) ([]Node, error) {
	if ref.Name == lang.AllNodes {
		return r.tank.Nodes(), nil
	}
	n, err := r.node(ref)
	if err != nil {
		return nil, err
	}
	return []Node{n}, nil
}

// podKey returns namespace/name of a Pod reference.
func (r *Runner) podKey(p lang.PodRef) (string, error) {
	if p.Backend == "" {
		return p.Namespace + "/" + p.Name, nil
	}
	n := r.named[p.Backend]
	if why := r.cannot[p.Backend]; why != "" {
		return "", errSkipped{why}
	}
	if n == nil || n.backend == "" {
		return "", fmt.Errorf("backend/%s: nothing answered it", p.Backend)
	}
	return n.backend, nil
}

// source finds where traffic comes from.
func (r *Runner) source(a lang.Address) (Source, error) {
	w := r.tank
	switch a.Kind {
	case lang.AddrExternal:
		x := w.External(a.Name)
		if x == nil {
			if n := w.Node(a.Name); n != nil {
				return w.NodeSource(n), nil
			}
			return nil, callErrorf("external %q does not exist", a.Name)
		}
		return w.ExternalSource(x), nil
	case lang.AddrNode:
		n, err := r.node(a.Node)
		if err != nil {
			return nil, err
		}
		return w.NodeSource(n), nil
	case lang.AddrPod, lang.AddrBackend:
		ref, _ := a.Pod()
		key, err := r.podKey(ref)
		if err != nil {
			return nil, err
		}
		if name, ok := strings.CutPrefix(key, "node/"); ok {
			return w.NodeSource(w.Node(name)), nil
		}
		if x := w.External(key); x != nil {
			return w.ExternalSource(x), nil
		}
		s, err := r.podSource(key)
		if err != nil {
			return nil, err
		}
		return s, nil
	case lang.AddrGateway:
		n, err := r.node(a.Node)
		if err != nil {
			return nil, err
		}
		return w.NodeSource(n), nil
	case lang.AddrIP:
		return r.sourceAt(a.IP)
	}
	return nil, callErrorf("%s: traffic comes from a Pod, an external host, node/N, gateway/N or an IP address of theirs", a)
}

// podSource finds a Pod as the source or destination of traffic. Of one that is not there the error names the one that
// was probably meant.
func (r *Runner) podSource(key string) (Source, error) {
	s, err := r.tank.PodSource(key)
	if err != nil {
		return nil, callErrorf("%w%s", err, r.similar(kube.KindPod, key))
	}
	return s, nil
}

// similar hints at the object of a kind with the closest name to namespace/name.
func (r *Runner) similar(kind kube.Kind, key string) string {
	var known []string
	for _, o := range r.tank.Objects().List(kind) {
		if m, err := meta.Accessor(o); err == nil {
			known = append(known, m.GetNamespace()+"/"+m.GetName())
		}
	}
	slices.Sort(known)
	return spelling.Hint(key, known)
}

// sourceAt finds who has an address now: a Pod, an external host or a node.
func (r *Runner) sourceAt(ip netip.Addr) (Source, error) {
	w := r.tank
	for _, o := range w.Objects().List(kube.KindPod) {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Spec.HostNetwork {
			continue
		}
		if s, err := w.PodSource(pod.Namespace + "/" + pod.Name); err == nil && s.Addr(ip.Is6()) == ip {
			return s, nil
		}
	}
	for _, x := range w.Externals() {
		if x.Addr(ip.Is6()) == ip {
			return w.ExternalSource(x), nil
		}
	}
	for _, n := range w.Nodes() {
		if n.Transport(ip.Is6()) == ip || n.Gateway(ip.Is6()) == ip || n.Up() && n.HasAddress(ip) {
			return w.NodeSource(n), nil
		}
	}
	return nil, fmt.Errorf("%s: no Pod, external host or node has this address now", ip)
}

// bind returns the address that a client binds to, where FROM names one of several that it has: the gateway's, or an
// IP address of a node. It is invalid where the sender has one of the family, or its routes decide.
func (r *Runner) bind(from lang.Address, v6 bool) netip.Addr {
	switch from.Kind {
	case lang.AddrGateway:
		if n, err := r.node(from.Node); err == nil {
			return n.Gateway(v6)
		}
	case lang.AddrIP:
		for _, n := range r.tank.Nodes() {
			if n.Up() && n.HasAddress(from.IP) && n.Transport(from.IP.Is6()) != from.IP {
				return from.IP
			}
		}
	}
	return netip.Addr{}
}

// errNoAddress is the error of a Pod that has none.
var errNoAddress = errors.New("there is no address")

// addresses returns what an address expression stands for; v6first says which family comes first if it
// has both.
func (r *Runner) addresses(a lang.Address) ([]netip.Addr, error) {
	w := r.tank
	both := func(f func(v6 bool) netip.Addr) []netip.Addr {
		var out []netip.Addr
		for _, v6 := range []bool{false, true} {
			if ip := f(v6); ip.IsValid() {
				out = append(out, ip)
			}
		}
		return out
	}
	switch a.Kind {
	case lang.AddrIP:
		return []netip.Addr{a.IP}, nil
	case lang.AddrExternal:
		if x := w.External(a.Name); x != nil {
			return both(x.Addr), nil
		}
		return nil, callErrorf("external %q does not exist", a.Name)
	case lang.AddrNode:
		n, err := r.node(a.Node)
		if err != nil {
			return nil, err
		}
		return both(n.Transport), nil
	case lang.AddrGateway:
		n, err := r.node(a.Node)
		if err != nil {
			return nil, err
		}
		return both(n.Gateway), nil
	case lang.AddrPod, lang.AddrBackend:
		ref, _ := a.Pod()
		key, err := r.podKey(ref)
		if err != nil {
			return nil, err
		}
		// What answered a Service may also be a node's process, an external host, or one of `endpoints`.
		if name, ok := strings.CutPrefix(key, "node/"); ok {
			return both(w.Node(name).Transport), nil
		}
		if x := w.External(key); x != nil {
			return both(x.Addr), nil
		}
		if ip, err := netip.ParseAddr(key); err == nil {
			return []netip.Addr{ip}, nil
		}
		s, err := r.podSource(key)
		if err != nil {
			return nil, err
		}
		out := both(s.Addr)
		if len(out) == 0 {
			out = r.statusAddresses(key)
		}
		if len(out) == 0 {
			return nil, fmt.Errorf("%w: pod %s", errNoAddress, key)
		}
		return out, nil
	case lang.AddrEgress:
		o, err := w.Objects().Get(kube.KindEgress, "", a.Name)
		if err != nil {
			return nil, errCall{err}
		}
		eg, _ := o.(*v1beta1.Egress)
		ip, err := netip.ParseAddr(eg.Status.EgressIP)
		if err != nil {
			return nil, fmt.Errorf("egress/%s: status.egressIP is %q", a.Name, eg.Status.EgressIP)
		}
		return []netip.Addr{ip}, nil
	}
	svc, err := r.service(a)
	if err != nil {
		return nil, err
	}
	switch a.Kind {
	case lang.AddrLB:
		return loadBalancerIPs(svc)
	case lang.AddrNodePort:
		n, err := r.node(a.Node)
		if err != nil {
			return nil, err
		}
		return both(n.Transport), nil
	}
	var out []netip.Addr
	for _, t := range svc.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(t); err == nil {
			out = append(out, ip)
		}
	}
	if len(out) == 0 {
		return nil, callErrorf("Service %s/%s has no cluster IP", svc.Namespace, svc.Name)
	}
	return out, nil
}

func loadBalancerIPs(svc *corev1.Service) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if ip, err := netip.ParseAddr(in.IP); err == nil {
			out = append(out, ip)
		}
	}
	if len(out) == 0 {
		return nil, callErrorf("Service %s/%s has no address in status.loadBalancer.ingress", svc.Namespace, svc.Name)
	}
	return out, nil
}

func (r *Runner) service(a lang.Address) (*corev1.Service, error) {
	o, err := r.tank.Objects().Get(kube.KindService, a.Namespace, a.Name)
	if err != nil {
		return nil, callErrorf("%w%s", err, r.similar(kube.KindService, a.Namespace+"/"+a.Name))
	}
	svc, _ := o.(*corev1.Service)
	return svc, nil
}

// flow builds the flow of a target. With errNoAddress it has no destination.
func (r *Runner) flow(from lang.Address, to lang.Target, o lang.FlowOptions) (Flow, error) {
	var f Flow
	src, err := r.source(from)
	if err != nil {
		return f, err
	}
	f.From, f.SPort, f.Size, f.DF = src, o.SPort, o.Size, o.DF
	if !o.Next.IsZero() {
		if f.Next, err = r.node(o.Next); err != nil {
			return f, err
		}
	}
	ips, err := r.addresses(to.Address)
	if err != nil {
		return f, err
	}
	f.To = ips[0]
	for _, ip := range ips {
		if o.Family != "" && ip.Is6() == (o.Family == "v6") {
			f.To = ip
			break
		}
	}
	if o.Family != "" && f.To.Is6() != (o.Family == "v6") {
		return f, callErrorf("%s has no address of family %s", to.Address, o.Family)
	}
	f.Bind = r.bind(from, f.To.Is6())
	proto := to.Proto
	f.Port = to.Port
	if to.IsService() && proto != lang.ProtoICMP && proto != lang.ProtoHTTP {
		if f.Port, proto, err = r.servicePort(to); err != nil {
			return f, err
		}
	}
	if f.Port == 0 {
		f.Port = 8080
	}
	switch proto {
	case "", lang.ProtoTCP:
		f.Proto = packet.ProtoTCP
	case lang.ProtoUDP:
		f.Proto = packet.ProtoUDP
	case lang.ProtoSCTP:
		f.Proto = packet.ProtoSCTP
	case lang.ProtoICMP:
		f.Proto = packet.ProtoICMP
		if f.To.Is6() {
			f.Proto = packet.ProtoICMPv6
		}
	case lang.ProtoHTTP:
		f.Proto, f.HTTP = packet.ProtoTCP, true
	}
	return f, nil
}

// servicePort finds number and protocol of a Service's port: by name, by number, or the only one.
func (r *Runner) servicePort(to lang.Target) (uint16, string, error) {
	svc, err := r.service(to.Address)
	if err != nil {
		return 0, "", err
	}
	number := func(p *corev1.ServicePort) uint16 {
		if to.Kind == lang.AddrNodePort {
			return uint16(p.NodePort)
		}
		return uint16(p.Port)
	}
	proto := func(p *corev1.ServicePort) string {
		if p.Protocol == "" {
			return lang.ProtoTCP
		}
		return strings.ToLower(string(p.Protocol))
	}
	var match []*corev1.ServicePort
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if (to.PortName == "" || p.Name == to.PortName) && (to.Port == 0 || uint16(p.Port) == to.Port || number(p) == to.Port) &&
			(to.Proto == "" || proto(p) == to.Proto) {
			match = append(match, p)
		}
	}
	switch {
	case len(match) == 1:
		if to.Kind == lang.AddrNodePort && match[0].NodePort == 0 {
			return 0, "", callErrorf("Service %s/%s has no node port", svc.Namespace, svc.Name)
		}
		return number(match[0]), proto(match[0]), nil
	case to.PortName != "":
		for i := range svc.Spec.Ports {
			if p := &svc.Spec.Ports[i]; p.Name == to.PortName {
				return 0, "", callErrorf("Service %s/%s: found %s/%s, but port %q is %s/%d", svc.Namespace, svc.Name, to.PortName, to.Proto, p.Name, proto(p), p.Port)
			}
		}
		return 0, "", callErrorf("Service %s/%s has no port named %q", svc.Namespace, svc.Name, to.PortName)
	case to.Port != 0:
		// A port that the Service does not have, or has for several protocols: as it is written.
		p := to.Proto
		if p == "" {
			p = lang.ProtoTCP
		}
		return to.Port, p, nil
	}
	return 0, "", callErrorf("Service %s/%s has %d ports: name one of them", svc.Namespace, svc.Name, len(svc.Spec.Ports))
}

// statusAddresses returns the addresses in the status of a Pod that does not run.
func (r *Runner) statusAddresses(key string) []netip.Addr {
	namespace, name, _ := strings.Cut(key, "/")
	o, err := r.tank.Objects().Get(kube.KindPod, namespace, name)
	if err != nil {
		return nil
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	var out []netip.Addr
	for _, p := range pod.Status.PodIPs {
		if ip, err := netip.ParseAddr(p.IP); err == nil {
			out = append(out, ip)
		}
	}
	return out
}
