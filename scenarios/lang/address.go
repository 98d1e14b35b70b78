package lang

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// AddressKind says how an Address is written and what it stands for.
type AddressKind int

// The kinds of addresses.
const (
	AddrIP       AddressKind = iota + 1 // an IP literal
	AddrExternal                        // NAME: an external host
	AddrNode                            // node/N: the node's transport address; owner/IP is short for node/owner/IP
	AddrPod                             // NS/POD
	AddrBackend                         // backend/NAME: the Pod that answered NAME
	AddrGateway                         // gateway/N: the gateway of the node's Pod network
	AddrService                         // svc/NS/NAME: the cluster IP
	AddrLB                              // lb/NS/NAME: the first load-balancer ingress IP
	AddrNodePort                        // nodeport/N/NS/NAME: the node's transport address and the Service's node port
	AddrEgress                          // egress/NAME: status.egressIP
)

// Address is an address expression; what it stands for is looked up when the step runs.
type Address struct {
	Kind AddressKind
	// IP is set for AddrIP.
	IP netip.Addr
	// Node is set for AddrNode, AddrGateway and AddrNodePort.
	Node NodeRef
	// Namespace is set for AddrPod, AddrService, AddrLB and AddrNodePort.
	Namespace string
	// Name is the name of the external host, Pod, Service, Egress or connection.
	Name string
}

// Pod returns the Pod of AddrPod and AddrBackend; ok is false for the others.
func (a Address) Pod() (p PodRef, ok bool) {
	switch a.Kind {
	case AddrPod:
		return PodRef{Namespace: a.Namespace, Name: a.Name}, true
	case AddrBackend:
		return PodRef{Backend: a.Name}, true
	}
	return PodRef{}, false
}

// IsService reports whether the address belongs to a Service, so that a port can be given by name.
func (a Address) IsService() bool {
	return a.Kind == AddrService || a.Kind == AddrLB || a.Kind == AddrNodePort
}

// String returns the address as it is written without a port.
func (a Address) String() string { return a.text(false) }

// text returns the address; an IPv6 literal that a port follows is in brackets.
func (a Address) text(port bool) string {
	ip := func(ip netip.Addr) string {
		if port && ip.Is6() {
			return "[" + ip.String() + "]"
		}
		return ip.String()
	}
	node := a.Node.Name
	if a.Node.Owner.IsValid() {
		node = "owner/" + ip(a.Node.Owner)
	}
	switch a.Kind {
	case AddrIP:
		return ip(a.IP)
	case AddrExternal:
		return a.Name
	case AddrNode:
		return "node/" + node
	case AddrPod:
		return a.Namespace + "/" + a.Name
	case AddrBackend:
		return "backend/" + a.Name
	case AddrGateway:
		return "gateway/" + node
	case AddrService:
		return "svc/" + a.Namespace + "/" + a.Name
	case AddrLB:
		return "lb/" + a.Namespace + "/" + a.Name
	case AddrNodePort:
		return "nodeport/" + node + "/" + a.Namespace + "/" + a.Name
	case AddrEgress:
		return "egress/" + a.Name
	}
	return ""
}

// addressForms is what errors say is allowed.
const addressForms = "an IP address, an external host, node/N, owner/IP, NS/POD, backend/NAME, gateway/N, svc/NS/NAME, " +
	"lb/NS/NAME, nodeport/N/NS/NAME, egress/NAME"

// ParseAddress reads an address expression without a port.
func ParseAddress(s string) (Address, error) {
	bad := func() (Address, error) {
		return Address{}, fmt.Errorf("found %q, allowed: %s%s", s, addressForms, variableHint(s))
	}
	if ip, err := parseIP(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		return Address{Kind: AddrIP, IP: ip}, nil
	}
	parts := strings.Split(s, "/")
	// owner/IP is one part wherever a node is.
	for i := 0; i+1 < len(parts) && i < 2; i++ {
		if parts[i] == "owner" {
			parts = slices.Concat(parts[:i], []string{parts[i] + "/" + parts[i+1]}, parts[i+2:])
		}
	}
	if strings.HasPrefix(parts[0], "owner/") {
		parts = slices.Concat([]string{"node"}, parts)
	}
	a := Address{Name: parts[len(parts)-1]}
	if len(parts) == 1 {
		if checkHostName(s) != nil {
			return bad()
		}
		a.Kind = AddrExternal
		return a, nil
	}
	form := map[string]struct {
		kind  AddressKind
		parts int
	}{
		"node": {AddrNode, 2}, "gateway": {AddrGateway, 2}, "egress": {AddrEgress, 2}, "backend": {AddrBackend, 2},
		"svc": {AddrService, 3}, "lb": {AddrLB, 3}, "nodeport": {AddrNodePort, 4},
	}
	f, ok := form[parts[0]]
	if !ok {
		f.kind, f.parts = AddrPod, 2
	}
	if len(parts) != f.parts {
		return bad()
	}
	a.Kind = f.kind
	var err error
	switch a.Kind {
	case AddrNode, AddrGateway:
		a.Name = ""
		a.Node, err = parseNode(parts[1])
	case AddrNodePort:
		if a.Node, err = parseNode(parts[1]); err == nil {
			a.Namespace, a.Name, err = parseNamespaced(parts[2] + "/" + parts[3])
		}
	case AddrPod:
		a.Namespace, a.Name, err = parseNamespaced(s)
	case AddrService, AddrLB:
		a.Namespace, a.Name, err = parseNamespaced(parts[1] + "/" + parts[2])
	case AddrEgress:
		if len(validation.IsDNS1123Subdomain(a.Name)) > 0 {
			return bad()
		}
	case AddrBackend:
		err = checkName(a.Name)
	}
	if err != nil {
		return bad()
	}
	return a, nil
}

// Addr is ParseAddress for text that is known to be right; it panics if it is not.
func Addr(s string) Address {
	a, err := ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

// splitPort separates :PORT from an address; port is empty if there is none.
func splitPort(s string) (addr, port string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || i < strings.LastIndexByte(s, ']') {
		return s, ""
	}
	if !strings.Contains(s, "]") && strings.Contains(s[:i], ":") {
		return s, "" // an IPv6 address without brackets
	}
	return s[:i], s[i+1:]
}

// Endpoint is an address, and the receiver's port if that matters.
type Endpoint struct {
	Address
	Port uint16 // 0: any
}

// String returns ADDRESS or ADDRESS:PORT.
func (e Endpoint) String() string {
	if e.Port == 0 {
		return e.Address.String()
	}
	return e.text(true) + ":" + strconv.Itoa(int(e.Port))
}

func parseEndpoint(s string) (Endpoint, error) {
	addr, port := splitPort(s)
	a, err := ParseAddress(addr)
	e := Endpoint{Address: a}
	if err == nil && (port != "" || strings.HasSuffix(s, ":") && addr != s) {
		e.Port, err = parsePort(port)
	}
	return e, err
}

// The protocols of a Target.
const (
	ProtoTCP  = "tcp"
	ProtoUDP  = "udp"
	ProtoSCTP = "sctp"
	ProtoICMP = "icmp"
	ProtoHTTP = "http" // a GET to a health port
)

// Target is where a connection goes: TO[:PORT[/PROTO]] or TO/icmp.
type Target struct {
	Address
	// Port is the number; 0 if none is given: a Service's only port, else 8080.
	Port uint16
	// PortName is the name of a Service's port, instead of Port.
	PortName string
	// Proto is tcp, udp, sctp, icmp or http; empty if none is given: that of the Service's port, else tcp.
	Proto string
}

// String returns the target as it is written.
func (t Target) String() string {
	if t.Proto == ProtoICMP {
		return t.Address.String() + "/icmp"
	}
	if t.Port == 0 && t.PortName == "" {
		return t.Address.String()
	}
	s := t.text(true) + ":" + t.PortName
	if t.PortName == "" {
		s += strconv.Itoa(int(t.Port))
	}
	if t.Proto != "" {
		s += "/" + t.Proto
	}
	return s
}

// ParseTarget reads TO[:PORT[/PROTO]] or TO/icmp.
func ParseTarget(s string) (Target, error) {
	if head, ok := strings.CutSuffix(s, "/"+ProtoICMP); ok {
		if a, err := ParseAddress(head); err == nil {
			return Target{Address: a, Proto: ProtoICMP}, nil
		}
	}
	addr, port := splitPort(s)
	a, err := ParseAddress(addr)
	if err != nil {
		return Target{}, fmt.Errorf("%w; then :PORT, :PORT/tcp, /udp, /sctp, /http, or /icmp", err)
	}
	t := Target{Address: a}
	if addr == s {
		return t, nil
	}
	port, proto, hasProto := strings.Cut(port, "/")
	if hasProto {
		if t.Proto, err = oneOf(proto, ProtoTCP, ProtoUDP, ProtoSCTP, ProtoHTTP); err != nil {
			return Target{}, fmt.Errorf("protocol of %s: %w", s, err)
		}
	}
	if a.IsService() && len(validation.IsValidPortName(port)) == 0 {
		t.PortName = port
		return t, nil
	}
	if t.Port, err = parsePort(port); err != nil {
		return Target{}, fmt.Errorf("port of %s: %w", s, err)
	}
	return t, nil
}

// To is ParseTarget for text that is known to be right; it panics if it is not.
func To(s string) Target {
	t, err := ParseTarget(s)
	if err != nil {
		panic(err)
	}
	return t
}

// Match is an expectation KEY=A|B (one of) or KEY!=A|B (none of).
type Match[T fmt.Stringer] struct {
	Not bool
	Of  []T
}

// OneOf is the expectation that the value is one of these.
func OneOf[T fmt.Stringer](of ...T) *Match[T] { return &Match[T]{Of: of} }

// NoneOf is the expectation that the value is none of these.
func NoneOf[T fmt.Stringer](of ...T) *Match[T] { return &Match[T]{Not: true, Of: of} }

// String returns A|B.
func (m Match[T]) String() string { return join(m.Of, "|") }

func parseMatch[T fmt.Stringer](op, s string, parse func(string) (T, error)) (*Match[T], error) {
	m := &Match[T]{Not: op == "!="}
	for w := range strings.SplitSeq(s, "|") {
		v, err := parse(w)
		if err != nil {
			return nil, err
		}
		m.Of = append(m.Of, v)
	}
	return m, nil
}

// optMatch prints KEY=A|B or KEY!=A|B.
func optMatch[T fmt.Stringer](p *printer, key string, m *Match[T]) {
	if m == nil {
		return
	}
	op := "="
	if m.Not {
		op = "!="
	}
	p.raw(quoteOption(key, op, m.String()))
}
