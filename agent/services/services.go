// Package services renders Service ports: one unit per namespace, name, port and family. It picks the
// endpoints, and has the pipeline and the host serve the addresses.
package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/config"
	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
)

// Services is the concern.
type Services struct {
	env *tables.Env
	// units are the units that a Service was last given, so that those it no longer has are rendered
	// once more, to nothing.
	units map[string][]string
	stale *flusher
	// made is what was made of the endpoints of a Service port, for its next rendering.
	made   map[string]*pipeline.Endpoints
	claims *claims
	// standIns are for external addresses that the node has.
	standIns *standIns
	// health is how many local endpoints the health port of a Service tells of; unwell has those that tell that the node
	// does not serve, as there is no switch.
	health map[string]int
	unwell map[string]bool
	down   bool
	// limited is the affinity time that a Service was told cannot be kept, so that it is told once.
	limited map[string]int32
}

// New returns the concern.
func New(env *tables.Env) *Services {
	s := &Services{env: env, units: map[string][]string{}, made: map[string]*pipeline.Endpoints{}, health: map[string]int{}, unwell: map[string]bool{}, limited: map[string]int32{}, standIns: newStandIns(), claims: newClaims()}
	s.stale = newFlusher(env)
	return s
}

// Kinds implements tables.Concern.
func (s *Services) Kinds() []string { return []string{"svcport", "svcskip", kindHealth} }

// Ready implements tables.Concern.
func (s *Services) Ready(string) bool {
	return s.env.AllSynced(edge.KindService, edge.KindEndpointSlice, edge.KindNode, tables.FactPorts, tables.FactLinks, tables.FactAddresses) &&
		pipeline.Ready(s.env.Tables)
}

// Restore implements tables.Concern: a Service port whose flows use a group keeps the group's id, and an
// external address its stand-in.
func (s *Services) Restore(dump []datapath.Object) {
	keepGroups(s.env.Groups, dump)
	s.standIns.keep(dump)
}

// Handle implements tables.Concern.
func (s *Services) Handle(ev any, old runtime.Object) {
	if s.env.NodePortsChanged() {
		s.withNodePort()
	}
	switch e := ev.(type) {
	case edge.ObjectEvent:
		switch e.Kind {
		case edge.KindService:
			if o, ok := old.(*corev1.Service); ok && s.env.Services[e.Key] != nil && sameService(o, s.env.Services[e.Key]) {
				return
			}
			s.claims.setAddresses(e.Key, externalOf(s.env.Cfg, s.env.Services[e.Key]))
			for _, other := range s.claims.set(e.Key, claimsOf(s.env.Cfg, s.env.Services[e.Key])) {
				s.changed(other)
			}
			s.changed(e.Key)
		case edge.KindEndpointSlice:
			was, is := "", s.env.ServiceOf(e.Key)
			if o, ok := old.(*discoveryv1.EndpointSlice); ok {
				was = tables.ServiceOfSlice(o)
			}
			s.endpointsChanged(was)
			if is != was {
				s.endpointsChanged(is)
			}
		case edge.KindNode:
			if e.Key == s.env.Cfg.NodeName && nodeMatters(old, s.env.ThisNode()) {
				s.all()
				return
			}
			o, _ := old.(*corev1.Node)
			before, now := tables.NodeAddresses(o), tables.NodeAddresses(s.env.Nodes[e.Key])
			if !slices.Equal(before, now) {
				s.withAddress(append(before, now...)...)
			}
		case edge.KindEgress:
			o, _ := old.(*v1beta1.Egress)
			before, now := tables.EgressAddresses(o), tables.EgressAddresses(s.env.Egresses[e.Key])
			if !slices.Equal(before, now) {
				s.withAddress(append(before, now...)...)
			}
		}
	case edge.SyncedEvent:
		if e.Kind == edge.KindEgress {
			s.withExternal()
		}
	case datapath.AddressEvent:
		s.withAddress(e.Addr)
	case datapath.PortEvent:
		if e.Name == pipeline.GatewayPort || e.Name == pipeline.TunnelPort {
			s.all()
		}
	case datapath.LinkEvent:
		if e.Name == pipeline.GatewayPort {
			s.all()
		}
	case datapath.DisconnectEvent:
		if e.Connected {
			s.stale.connected()
		} else {
			s.stale.disconnected()
		}
		s.switchChanged(e.Connected)
	}
}

// sameService reports whether two versions differ in nothing that is rendered.
func sameService(a, b *corev1.Service) bool {
	return a.Generation == b.Generation && a.Generation != 0 && slices.EqualFunc(a.Status.LoadBalancer.Ingress, b.Status.LoadBalancer.Ingress, sameIngress) &&
		mapEqual(a.Labels, b.Labels) && mapEqual(a.Annotations, b.Annotations) && a.ResourceVersion != "" && sameSpec(a, b)
}

func nodeMatters(old runtime.Object, cur *corev1.Node) bool {
	o, ok := old.(*corev1.Node)
	if !ok || cur == nil {
		return true
	}
	return o.Labels[corev1.LabelTopologyZone] != cur.Labels[corev1.LabelTopologyZone] ||
		!slices.Equal(tables.NodeAddresses(o), tables.NodeAddresses(cur))
}

func (s *Services) all() {
	//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
	for key := range s.units {
		s.changed(key)
	}
	//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
	for key := range s.env.Services {
		s.changed(key)
	}
}

// withNodePort marks the Services that have node ports.
func (s *Services) withNodePort() {
	//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
	for key, svc := range s.env.Services {
		if svc.Spec.Type != corev1.ServiceTypeClusterIP {
			s.changed(key)
		}
	}
}

// withAddress marks the Services that have one of the addresses as an external one.
func (s *Services) withAddress(list ...netip.Addr) {
	for _, a := range list {
		for _, key := range s.claims.at[a] {
			s.changed(key)
		}
	}
}

// withExternal marks the Services that have external addresses.
func (s *Services) withExternal() {
	//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
	for key := range s.claims.addresses {
		s.changed(key)
	}
}

// endpointsChanged marks every unit of a Service that itself is as it was.
func (s *Services) endpointsChanged(key string) {
	for _, u := range s.units[key] {
		s.env.Dirty(u)
	}
	s.healthChanged(key)
}

// changed marks every unit that a Service has or had.
func (s *Services) changed(key string) {
	if key == "" {
		return
	}
	next := unitsOf(s.env, key)
	for _, u := range s.units[key] {
		if !slices.Contains(next, u) {
			s.env.Dirty(u)
		}
	}
	for _, u := range next {
		s.env.Dirty(u)
	}
	s.healthChanged(key)
	if len(next) == 0 {
		delete(s.units, key)
		delete(s.limited, key)
		return
	}
	s.units[key] = next
}

// unitsOf returns the units of a Service, sorted.
func unitsOf(env *tables.Env, key string) []string {
	svc := env.Services[key]
	if svc == nil || !isServed(svc) {
		return nil
	}
	if isSkipped(env.Cfg, svc) {
		return []string{"svcskip/" + key}
	}
	var out []string
	for _, v6 := range env.Cfg.Families() {
		if !clusterIP(svc, v6).IsValid() {
			continue
		}
		for _, p := range svc.Spec.Ports {
			out = append(out, unitName(key, p.Name, p.Protocol, v6))
		}
	}
	slices.Sort(out)
	return out
}

func unitName(key, port string, proto corev1.Protocol, v6 bool) string {
	return "svcport/" + key + ":" + portName(port, proto) + "/" + familyName(v6)
}

// portName is what a unit is named after: the port's name or, without one, the protocol.
func portName(port string, proto corev1.Protocol) string {
	switch {
	case port != "":
		return port
	case proto == corev1.ProtocolTCP:
		return "tcp"
	}
	return strings.ToLower(string(proto))
}

func familyName(v6 bool) string {
	if v6 {
		return "v6"
	}
	return "v4"
}

// isSkipped reports whether the configuration leaves a Service to somebody else, by name or ClusterIP.
func isSkipped(cfg *config.Config, svc *corev1.Service) bool {
	return slices.ContainsFunc(cfg.SkipServices, func(skip string) bool {
		return skip == svc.Namespace+"/"+svc.Name || slices.Contains(svc.Spec.ClusterIPs, skip) || skip == svc.Spec.ClusterIP
	})
}

// serviceOf returns the key of the Service that a unit of one of its ports belongs to.
func serviceOf(unit string) string {
	key, _, _ := splitUnit(unit)
	return key
}

// splitUnit is the opposite of unitName: it returns the key of the Service, portName and familyName.
func splitUnit(unit string) (key, port, family string) {
	key, port, _ = strings.Cut(strings.TrimPrefix(unit, "svcport/"), ":")
	port, family, _ = strings.Cut(port, "/")
	return key, port, family
}

// isServed reports whether a Service is ours to serve: it has an address, and does not name another
// proxy.
func isServed(svc *corev1.Service) bool {
	if svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.ClusterIP == "" {
		return false
	}
	if _, ok := svc.Labels["service.kubernetes.io/service-proxy-name"]; ok {
		return false
	}
	_, headless := svc.Labels[corev1.IsHeadlessService]
	return !headless
}

// parse splits a unit's name and finds what it names; svc is nil if there is no such Service port.
func (s *Services) parse(unit string) (svc *corev1.Service, port *corev1.ServicePort, v6 bool) {
	key, name, family := splitUnit(unit)
	svc = s.env.Services[key]
	if svc == nil || !slices.Contains(s.units[key], unit) {
		return nil, nil, false
	}
	v6 = family == familyName(true)
	for j := range svc.Spec.Ports {
		p := &svc.Spec.Ports[j]
		if name == portName(p.Name, p.Protocol) {
			return svc, p, v6
		}
	}
	return nil, nil, false
}

// Render implements tables.Concern.
func (s *Services) Render(unit string) ([]datapath.Object, datapath.Precedence) {
	l := &pipeline.List{}
	p := pipeline.Of(s.env.Tables)
	if key, skip := strings.CutPrefix(unit, "svcskip/"); skip {
		svc := s.env.Services[key]
		if svc == nil || !slices.Contains(s.units[key], unit) {
			return nil, datapath.Precedence{}
		}
		for _, v6 := range s.env.Cfg.Families() {
			if ip := clusterIP(svc, v6); ip.IsValid() {
				p.SkippedAddress(l, unit, ip)
			}
		}
		return l.Objects(), datapath.Precedence{Age: svc.CreationTimestamp.Unix()}
	}
	if key, ok := strings.CutPrefix(unit, kindHealth+"/"); ok {
		return s.renderHealth(l, key)
	}
	svc, port, v6 := s.parse(unit)
	if svc == nil || !p.Ready() {
		s.stale.next(unit, nil)
		delete(s.made, unit)
		return nil, datapath.Precedence{}
	}
	sp := s.build(unit, svc, port, v6)
	p.ServiceFlows(l, &sp.Service)
	s.addresses(l, p, sp)
	if err := l.Err(); err != nil {
		s.env.Log.Error(err, "Service port cannot be rendered whole", "unit", unit)
		s.env.Cluster.Record(edge.Ref{Kind: "Service", Namespace: svc.Namespace, Name: svc.Name}, "Warning", "NotServed", err.Error())
	}
	s.stale.next(unit, sp)
	return l.Objects(), datapath.Precedence{Age: svc.CreationTimestamp.Unix()}
}

// servicePort is a Service port with what the host needs besides the pipeline.
type servicePort struct {
	pipeline.Service
	nodePort uint16
	port     uint16
	external []external // load-balancer and external addresses
}

// external is a load-balancer or external address.
type external struct {
	netip.Addr
	// own is set if this node has it: its kernel would deliver it to itself, so it is translated.
	own bool
	// node is set if it is the address of a node, this or another one: a route into the bridge would cut
	// the nodes off from each other, and what the node itself serves there is not ours to refuse.
	node bool
}

func (s *Services) build(unit string, svc *corev1.Service, port *corev1.ServicePort, v6 bool) *servicePort {
	key := svc.Namespace + "/" + svc.Name
	zone := ""
	if n := s.env.ThisNode(); n != nil {
		zone = n.Labels[corev1.LabelTopologyZone]
	}
	sel := choose(collect(s.env.Tables, key, port.Name, protocolOf(port), v6), s.env.Cfg.NodeName, zone)
	sp := &servicePort{}
	sp.Unit, sp.V6, sp.Proto = unit, v6, protoNumber(protocolOf(port))
	sp.AffinitySeconds = s.affinity(svc)
	internalLocal := svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	externalLocal := svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	s.frontends(sp, svc, port, internalLocal, externalLocal)

	needLocal, needCluster, dsr := false, false, false
	for _, f := range sp.Frontends {
		needLocal = needLocal || f.Local
		dsr = dsr || f.DSR
		needCluster = needCluster || !f.Local || f.External
	}
	cookie := pipeline.Cookie(pipeline.CookieService, unit)
	if needCluster {
		sp.ClusterGroup = s.env.Groups.ID(unit, "cluster", cookie)
		sp.Cluster = backends(sel.Cluster)
	} else {
		s.env.Groups.Free(unit, "cluster")
	}
	sp.LocalOnlyElsewhere = len(sel.Local) == 0 && sel.Any
	if needLocal && !sp.LocalOnlyElsewhere {
		sp.LocalGroup = s.env.Groups.ID(unit, "local", cookie)
		sp.Local = backends(sel.Local)
	} else {
		s.env.Groups.Free(unit, "local")
	}
	// Of those that answer for another node, only Pods with an address of their own can: what has the node's address answers
	// by the node's network, with that address.
	if here := filter(sel.Cluster, func(e *Endpoint) bool { return e.Local && s.env.Cfg.IsPodAddress(e.Addr()) }); dsr && len(here) > 0 {
		sp.NodeGroup = s.env.Groups.ID(unit, "node", cookie)
		sp.Node = backends(here)
	} else {
		s.env.Groups.Free(unit, "node")
	}
	if s.made[unit] == nil {
		s.made[unit] = &pipeline.Endpoints{}
	}
	sp.Made = s.made[unit]
	sp.SubGroups = func(group uint32, i int) uint32 {
		return s.env.Groups.ID(unit, fmt.Sprintf("%d/%d", group, i), cookie)
	}
	return sp
}

func backends(e []Endpoint) []pipeline.Backend {
	out := make([]pipeline.Backend, 0, len(e))
	for i := range e {
		out = append(out, pipeline.Backend{AddrPort: e[i].AddrPort, Local: e[i].Local})
	}
	return out
}

// maxAffinitySeconds is what a flow's hard timeout can hold (16 bits, OpenFlow 1.5, 7.3.4.2).
const maxAffinitySeconds = 65535

func (s *Services) affinity(svc *corev1.Service) uint16 {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := int32(corev1.DefaultClientIPServiceAffinitySeconds)
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	key := svc.Namespace + "/" + svc.Name
	if seconds <= maxAffinitySeconds {
		delete(s.limited, key)
		return uint16(max(seconds, 1))
	}
	if s.limited[key] != seconds {
		s.limited[key] = seconds
		s.env.Log.Info("Session affinity is limited", "service", key, "wantSeconds", seconds, "seconds", maxAffinitySeconds)
		s.env.Cluster.Record(edge.Ref{Kind: "Service", Namespace: svc.Namespace, Name: svc.Name}, "Warning", "SessionAffinityLimited",
			fmt.Sprintf("spec.sessionAffinityConfig.clientIP.timeoutSeconds is %d: the datapath keeps affinity for at most %d seconds", seconds, maxAffinitySeconds))
	}
	return maxAffinitySeconds
}

// Realised implements tables.Concern.
func (s *Services) Realised(unit string) {
	if !strings.HasPrefix(unit, "svcport/") {
		return
	}
	s.served(serviceOf(unit))
	if svc, _, _ := s.parse(unit); svc == nil && !s.env.Store.Has(unit) {
		s.env.Groups.FreeUnit(unit)
	}
	s.stale.realised(unit)
}

// Advance is called at the end of every turn of the loop.
func (s *Services) Advance() {
	if s.env.Restored() && s.Ready("svcport") && s.env.AllClean("svcport") {
		s.stale.advance()
	}
}

// Given hears that a unit was given what it had before this process and does not want any more.
func (s *Services) Given(unit string) { s.stale.given(unit) }

// Refused implements tables.Concern.
func (s *Services) Refused(unit string, _ error) {
	s.stale.refused(unit)
	if strings.HasPrefix(unit, "svcport/") {
		s.notServed(serviceOf(unit))
	}
}
