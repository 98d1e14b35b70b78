package fuzz

import (
	"fmt"
	"slices"
	"strings"
)

type service struct {
	name     string // NS/NAME
	kind     string
	ports    []port
	balancer string // its address, "" if it has none
	selector bool
}

type port struct {
	name   string
	number int
	proto  string // tcp, udp, sctp
}

type egress struct {
	name, pool, ip string
}

const (
	maxServices = 5
	maxEgresses = 4
)

var serviceActions = []action{
	{topicServices, 3, workStream, func(g *generator) bool { return len(g.services) < maxServices }, (*generator).serviceApply},
	{topicServices, 2, workStream, (*generator).hasService, (*generator).serviceReplace},
	{topicServices, 3, workStream, (*generator).hasService, (*generator).servicePatch},
	{topicServices, 1.5, workStream, (*generator).hasService, (*generator).serviceDelete},
	{topicServices, 1, workStream, (*generator).hasService, (*generator).serviceEndpoints},
	{topicServices, 1, workStream, nil, (*generator).slices},
}

func (g *generator) hasService() bool { return len(g.services) > 0 }

func (g *generator) anyService() *service { return pick(g, g.services...) }

// serviceApply makes a Service.
func (g *generator) serviceApply() {
	s := &service{}
	for s.name == "" || slices.ContainsFunc(g.services, func(o *service) bool { return o.name == s.name }) {
		s.name = fmt.Sprintf("default/s%d", g.rng.IntN(2*maxServices))
	}
	g.services = append(g.services, s)
	g.serviceWrite(s)
}

// serviceReplace applies another version of a Service that is there.
func (g *generator) serviceReplace() { g.serviceWrite(g.anyService()) }

func (g *generator) serviceDelete() {
	s := g.anyService()
	g.add("delete service %s", s.name)
	g.services = remove(g.services, s)
}

// serviceWrite draws what a Service says, and applies it.
func (g *generator) serviceWrite(s *service) {
	_, name, _ := strings.Cut(s.name, "/")
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default}\nspec:\n", name)
	line := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+"\n", args...) }
	s.kind = pick(g, "ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer")
	line("type: %s", s.kind)
	if s.selector = g.often(85); s.selector {
		line("selector: {app: %s}", pick(g, apps...))
	}
	if g.opts.IP == "dual" {
		line("ipFamilyPolicy: %s", pick(g, "SingleStack", "PreferDualStack", "RequireDualStack"))
	}
	g.ports(s)
	var ports []string
	for _, p := range s.ports {
		ports = append(ports, fmt.Sprintf("{name: %s, port: %d, targetPort: 8080, protocol: %s}", p.name, p.number, strings.ToUpper(p.proto)))
	}
	line("ports: [%s]", strings.Join(ports, ", "))
	if g.often(25) {
		line("sessionAffinity: ClientIP")
		line("sessionAffinityConfig: {clientIP: {timeoutSeconds: %d}}", pick(g, 5, 30, 10800, 86400))
	}
	if g.often(20) {
		line("internalTrafficPolicy: Local")
	}
	if s.kind != "ClusterIP" && g.often(35) {
		line("externalTrafficPolicy: Local")
	}
	if g.often(20) {
		line("externalIPs: [%s]", g.address("192.0.2.2%d", "2001:db8::2%d", 3))
	}
	if s.kind == "LoadBalancer" && g.often(15) {
		line("loadBalancerSourceRanges: [%s]", pick(g, `172.18.0.0/16, "fd00:18::/64"`, "172.18.0.101/32", "203.0.113.0/24"))
	}
	s.balancer = ""
	if s.kind == "LoadBalancer" && g.often(85) {
		s.balancer = g.address("192.0.2.1%d", "2001:db8::1%d", 6)
		fmt.Fprintf(&b, "status: {loadBalancer: {ingress: [{ip: %s}]}}\n", s.balancer)
	}
	g.apply(name, b.String())
}

// address returns the i-th of a few addresses of a family that the cluster has.
func (g *generator) address(v4, v6 string, n int) string {
	i := g.rng.IntN(n)
	if g.opts.IP == "v6" || g.opts.IP == "dual" && g.often(30) {
		return `"` + fmt.Sprintf(v6, i) + `"`
	}
	return fmt.Sprintf(v4, i)
}

func (g *generator) ports(s *service) {
	all := []port{{"http", 80, "tcp"}, {"alt", 81, "tcp"}, {"dns", 80, "udp"}, {"sig", 80, "sctp"}, {"udp", 53, "udp"}}
	s.ports = nil
	for range pick(g, 1, 1, 2, 3) {
		if p := pick(g, all...); !slices.Contains(s.ports, p) {
			s.ports = append(s.ports, p)
		}
	}
}

// servicePatch changes one thing of a Service.
func (g *generator) servicePatch() {
	s := g.anyService()
	patches := []string{
		`{"spec":{"internalTrafficPolicy":"Local"}}`, `{"spec":{"internalTrafficPolicy":"Cluster"}}`,
		`{"spec":{"sessionAffinity":"ClientIP"}}`, `{"spec":{"sessionAffinity":"None","sessionAffinityConfig":null}}`,
		`{"spec":{"externalIPs":[]}}`, `{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":"other"}}}`,
		`{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":null}}}`,
	}
	if s.selector {
		patches = append(patches, fmt.Sprintf(`{"spec":{"selector":{"app":"%s"}}}`, pick(g, "web", "api", "db", "none")))
	}
	if s.kind != "ClusterIP" {
		patches = append(patches, `{"spec":{"externalTrafficPolicy":"Local"}}`, `{"spec":{"externalTrafficPolicy":"Cluster"}}`)
	}
	if s.kind == "LoadBalancer" {
		if s.balancer = g.address("192.0.2.1%d", "2001:db8::1%d", 6); g.often(30) {
			s.balancer = ""
			patches = append(patches, `{"status":{"loadBalancer":{"ingress":[]}}}`)
		} else {
			patches = append(patches, fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":"%s"}]}}}`, strings.Trim(s.balancer, `"`)))
		}
		g.add("patch service %s %s", s.name, patches[len(patches)-1])
		return
	}
	g.add("patch service %s %s", s.name, pick(g, patches...))
}

// serviceEndpoints gives a Service without selector endpoints.
func (g *generator) serviceEndpoints() {
	for _, s := range g.services {
		if !s.selector {
			g.add("endpoints %s %d", s.name, g.between(0, 3))
			return
		}
	}
	g.servicePatch()
}

// slicesService is a Service whose EndpointSlices are written by the scenario.
const slicesService = `apiVersion: v1
kind: Service
metadata: {name: hand, namespace: default}
spec: {ports: [{port: 80, targetPort: 8080}]}
---
`

// slices writes the EndpointSlices of a Service by hand: all conditions, hints, and one address twice.
func (g *generator) slices() {
	if g.opts.IP == "v6" {
		g.serviceApplyOr()
		return
	}
	n := g.between(1, 2)
	text := slicesService
	for i := range n {
		text += fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: hand-%d, namespace: default, "+
			"labels: {kubernetes.io/service-name: hand}}\naddressType: IPv4\nports: [{name: \"\", port: 8080}]\nendpoints:\n", i+1)
		hints := g.often(40)
		for range g.between(1, 3) {
			text += g.endpoint(hints)
		}
		if i < n-1 {
			text += "---\n"
		}
	}
	g.apply("hand", text)
}

// serviceApplyOr makes a Service, or changes one if there are enough.
func (g *generator) serviceApplyOr() {
	if len(g.services) < maxServices {
		g.serviceApply()
		return
	}
	g.servicePatch()
}

func (g *generator) endpoint(hints bool) string {
	k := g.rng.IntN(len(g.nodes))
	node := g.nodes[k]
	ip := fmt.Sprintf("10.10.%d.%d", k+1, g.between(2, 4))
	conditions := pick(g, "{ready: true}", "{ready: true}", "{ready: true}", "{ready: false}",
		"{ready: false, serving: true, terminating: true}", "{ready: false, serving: false, terminating: true}")
	hint := ""
	if hints || g.often(10) {
		hint = fmt.Sprintf(", hints: {forZones: [{name: %s}]}", pick(g, "a", "b"))
	}
	return fmt.Sprintf("- {addresses: [%s], nodeName: %s, conditions: %s%s}\n", ip, node, conditions, hint)
}

var egressActions = []action{
	{topicEgress, 3, workStream, func(g *generator) bool { return len(g.egresses) < maxEgresses }, (*generator).egressApply},
	{topicEgress, 3, workStream, (*generator).hasEgress, func(g *generator) { g.egressWrite(pick(g, g.egresses...)) }},
	{topicEgress, 2, workStream, (*generator).hasEgress, (*generator).egressDelete},
	{topicEgress, 2, workStream, nil, (*generator).static},
	{topicEgress, 1, workStream, func(g *generator) bool { return len(g.pools) > 0 }, (*generator).poolChange},
	{topicEgress, 1, workStream, nil, func(g *generator) { g.add("namespace shop team=%s", pick(g, "x", "y")) }},
	{topicNodes, 2, workStream, nil, func(g *generator) { g.add("label node/%s egress=%s", g.node(), pick(g, "yes", "no")) }},
	{topicNodes, 1, workStream, nil, func(g *generator) {
		g.add("label node/%s topology.kubernetes.io/zone=%s", g.node(), pick(g, "a", "b"))
	}},
	{topicNodes, 1, workStream, nil, func(g *generator) {
		if g.often(50) {
			g.add("annotate node/%s node.antrea.io/max-egress-ips-", g.node())
			return
		}
		g.add("annotate node/%s node.antrea.io/max-egress-ips=%s", g.node(), pick(g, "0", "1", "2", "many"))
	}},
}

func (g *generator) hasEgress() bool { return len(g.egresses) > 0 }

// egressApply makes an Egress, and the pool it takes its address from if there is none yet.
func (g *generator) egressApply() {
	e := &egress{}
	for e.name == "" || slices.ContainsFunc(g.egresses, func(o *egress) bool { return o.name == e.name }) {
		e.name = fmt.Sprintf("e%d", g.rng.IntN(2*maxEgresses))
	}
	g.egresses = append(g.egresses, e)
	g.egressWrite(e)
}

func (g *generator) egressWrite(e *egress) {
	e.pool, e.ip = "", ""
	where := ""
	if g.often(65) {
		e.pool = g.somePool()
		where = "externalIPPool: " + e.pool
	} else {
		e.ip = g.address("172.18.0.6%d", "fd00:18::6%d", 3)
		where = "egressIP: " + e.ip
	}
	to := pick(g, "{podSelector: {matchLabels: {app: web}}}", "{podSelector: {matchLabels: {app: api}}}",
		"{podSelector: {matchExpressions: [{key: app, operator: In, values: [web, db]}]}}",
		"{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}, {key: canary, operator: DoesNotExist}]}}",
		"{namespaceSelector: {matchLabels: {team: x}}}", "{namespaceSelector: {matchLabels: {team: x}}, podSelector: {matchLabels: {app: web}}}")
	band := ""
	if g.often(8) {
		band = "  bandwidth: {rate: 10M, burst: 20M}\n"
	}
	g.apply(e.name, fmt.Sprintf("apiVersion: crd.antrea.io/v1beta1\nkind: Egress\nmetadata: {name: %s}\nspec:\n  appliedTo: %s\n  %s\n%s",
		e.name, to, where, band))
}

// somePool returns the name of a pool, making it first if it is not there.
func (g *generator) somePool() string {
	name := pick(g, "pool-a", "pool-b")
	if g.dmz && g.often(30) {
		name = "pool-dmz"
	}
	if !slices.Contains(g.pools, name) {
		g.pools = append(g.pools, name)
		g.poolWrite(name)
	}
	return name
}

func (g *generator) poolWrite(name string) {
	ranges, subnet := "", ""
	switch {
	case name == "pool-dmz":
		ranges = "{start: 172.20.0.50, end: 172.20.0.59}"
		subnet = "  subnetInfo: {gateway: 172.20.0.1, prefixLength: 16, vlan: 20}\n"
	case g.opts.IP == "v6" || g.opts.IP == "dual" && g.often(30):
		ranges = pick(g, `{start: "fd00:18::5N0", end: "fd00:18::5N3"}`, `{start: "fd00:18::5N4", end: "fd00:18::5N4"}`)
	default:
		ranges = pick(g, "{start: 172.18.0.5N, end: 172.18.0.5M}", "{start: 172.18.0.5M, end: 172.18.0.5M}", "{cidr: 172.18.0.7N/31}")
	}
	// Ranges of two pools must not overlap.
	numbers := strings.NewReplacer("N", "0", "M", "3")
	if name == "pool-b" {
		numbers = strings.NewReplacer("N", "4", "M", "6")
	}
	ranges = numbers.Replace(ranges)
	nodes := pick(g, `{matchLabels: {egress: "yes"}}`, `{matchLabels: {egress: "yes"}}`, "{}")
	g.apply(name, fmt.Sprintf("apiVersion: crd.antrea.io/v1beta1\nkind: ExternalIPPool\nmetadata: {name: %s}\nspec:\n  ipRanges: [%s]\n%s  nodeSelector: %s\n",
		name, ranges, subnet, nodes))
}

func (g *generator) poolChange() {
	name := pick(g, g.pools...)
	if g.often(40) {
		g.add("delete externalippool %s", name)
		g.pools = remove(g.pools, name)
		if g.often(60) {
			g.pools = append(g.pools, name)
			g.poolWrite(name)
		}
		return
	}
	g.add("patch externalippool %s %s", name, pick(g, `{"spec":{"nodeSelector":{"matchLabels":{"egress":"yes"}}}}`,
		`{"spec":{"nodeSelector":{"matchLabels":{"egress":null,"kubernetes.io/hostname":"n1"}}}}`))
}

func (g *generator) egressDelete() {
	e := pick(g, g.egresses...)
	g.add("delete egress %s", e.name)
	g.egresses = slices.DeleteFunc(g.egresses, func(o *egress) bool { return o == e })
}

// static puts an address of an Egress without a pool on a node, or takes it away, as an operator does.
func (g *generator) static() {
	if g.statics == nil {
		g.statics = map[string]string{}
	}
	ip := strings.Trim(g.address("172.18.0.6%d", "fd00:18::6%d", 3), `"`)
	if n := g.statics[ip]; n != "" {
		if g.off[n] {
			return
		}
		g.add("host %s : ip addr del %s dev eth0", n, single(ip))
		delete(g.statics, ip)
		return
	}
	n := g.node()
	if g.off[n] {
		return
	}
	g.statics[ip] = n
	// Deprecated, an IPv6 address is no source that the node chooses by itself.
	lifetime := ""
	if strings.Contains(ip, ":") {
		lifetime = " preferred_lft 0"
	}
	g.add("host %s : ip addr add %s dev eth0%s", n, single(ip), lifetime)
}

func single(ip string) string {
	if strings.Contains(ip, ":") {
		return ip + "/128"
	}
	return ip + "/32"
}
