package lang

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"towtank/internal/spelling"
)

// NodeRef is where a node is expected: its name, or owner/IP for the node that holds an address when
// the step runs. Some commands also take * (all nodes), controller, any, none, api or an external
// host as the name.
type NodeRef struct {
	Name  string
	Owner netip.Addr
}

// String returns the reference as it is written.
func (n NodeRef) String() string {
	if n.Owner.IsValid() {
		return "owner/" + n.Owner.String()
	}
	return n.Name
}

// IsZero reports whether no node is named.
func (n NodeRef) IsZero() bool { return n == NodeRef{} }

// The names that stand for something else than one node.
const (
	AllNodes   = "*"
	Controller = "controller" // the pool allocation
	AnyNode    = "any"        // expect-owner: exactly one
	NoNode     = "none"       // expect-owner: nobody
	API        = "api"        // partition: the API server
)

// reservedNames cannot be names of nodes and external hosts.
var reservedNames = []string{
	Controller, AnyNode, NoNode, API, "node", "gateway", "svc", "lb", "nodeport", "egress", "owner", "backend",
}

// parseNode reads a node's name, owner/IP, or one of the extra words.
func parseNode(s string, extra ...string) (NodeRef, error) {
	if slices.Contains(extra, s) {
		return NodeRef{Name: s}, nil
	}
	if ip, ok := strings.CutPrefix(s, "owner/"); ok {
		a, err := parseIP(strings.TrimSuffix(strings.TrimPrefix(ip, "["), "]"))
		return NodeRef{Owner: a}, err
	}
	if err := checkHostName(s); err != nil {
		allowed := "a node's name or owner/IP"
		for _, e := range extra {
			allowed += ", " + e
		}
		return NodeRef{}, fmt.Errorf("found %q, allowed: %s (%w)", shortened(s), allowed, err)
	}
	return NodeRef{Name: s}, nil
}

// checkHostName accepts the names of nodes, external hosts and networks.
func checkHostName(s string) error {
	if slices.Contains(reservedNames, s) {
		return fmt.Errorf("%q is a word of the language, not a name", s)
	}
	if e := validation.IsDNS1123Subdomain(s); len(e) > 0 {
		return fmt.Errorf("%q is not a name: %s%s", shortened(s), subdomainRule, variableHint(s))
	}
	return nil
}

// What names are made of: those of namespaces, and those of most other objects.
const (
	labelRule     = "at most 63 lower-case letters, digits and -, with a letter or digit at both ends"
	subdomainRule = "at most 253 lower-case letters, digits, - and ., with a letter or digit at both ends"
)

// shownLetters is how much of a word that is wrong an error shows.
const shownLetters = 60

// shortened cuts a word for an error.
func shortened(s string) string {
	if r := []rune(s); len(r) > shownLetters {
		return string(r[:shownLetters-1]) + "…"
	}
	return s
}

// variableHint explains a $ that was not replaced.
func variableHint(s string) string {
	if strings.Contains(s, "$") {
		return "; no enclosing for has this variable"
	}
	return ""
}

// checkName accepts the names that are only of the scenario: as=, open, stream.
func checkName(s string) error {
	if e := validation.IsDNS1123Label(s); len(e) > 0 {
		return fmt.Errorf("%q is not a name: %s%s", shortened(s), labelRule, variableHint(s))
	}
	return nil
}

// PodRef is where a Pod is expected: NS/POD, or backend/NAME for the Pod that answered the probe or
// connection NAME.
type PodRef struct {
	Namespace, Name string
	Backend         string
}

// String returns the reference as it is written.
func (p PodRef) String() string {
	if p.Backend != "" {
		return "backend/" + p.Backend
	}
	return p.Namespace + "/" + p.Name
}

// IsZero reports whether no Pod is named.
func (p PodRef) IsZero() bool { return p == PodRef{} }

func parsePod(s string) (PodRef, error) {
	if name, ok := strings.CutPrefix(s, "backend/"); ok {
		return PodRef{Backend: name}, checkName(name)
	}
	ns, name, err := parseNamespaced(s)
	return PodRef{Namespace: ns, Name: name}, err
}

// parseNamespaced reads NS/NAME.
func parseNamespaced(s string) (ns, name string, err error) {
	ns, name, ok := strings.Cut(s, "/")
	rule := ""
	switch {
	case !ok || ns == "" || name == "" || strings.Contains(name, "/"):
	case len(validation.IsDNS1123Label(ns)) > 0:
		rule = "; a NAMESPACE is " + labelRule
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		rule = "; a NAME is " + subdomainRule
	default:
		return ns, name, nil
	}
	return "", "", fmt.Errorf("found %q, allowed: NAMESPACE/NAME%s%s", shortened(s), rule, variableHint(s))
}

// ObjectRef names a Kubernetes object. Kind is in lower case; Namespace is empty for cluster-scoped
// kinds.
type ObjectRef struct {
	Kind, Namespace, Name string
}

// String returns NS/NAME or NAME, without the kind.
func (o ObjectRef) String() string {
	if o.Namespace != "" {
		return o.Namespace + "/" + o.Name
	}
	return o.Name
}

// Kinds are the Kubernetes kinds that steps can name, in lower case.
var Kinds = []string{
	"configmap", "cronjob", "daemonset", "deployment", "egress", "egressgroup", "endpoints", "endpointslice", "externalippool",
	"ingress", "job", "namespace", "networkpolicy", "node", "pod", "replicaset", "secret", "service",
	"serviceaccount", "statefulset",
}

// spellings are what kubectl takes for a kind besides its name: plurals and short names.
var spellings = map[string]string{
	"configmaps": "configmap", "cm": "configmap", "cronjobs": "cronjob", "cj": "cronjob", "daemonsets": "daemonset", "ds": "daemonset",
	"deployments": "deployment", "deploy": "deployment", "egresses": "egress", "eg": "egress", "egressgroups": "egressgroup",
	"ep": "endpoints", "endpointslices": "endpointslice", "externalippools": "externalippool", "eip": "externalippool",
	"ingresses": "ingress", "ing": "ingress", "jobs": "job", "namespaces": "namespace", "ns": "namespace",
	"networkpolicies": "networkpolicy", "netpol": "networkpolicy", "nodes": "node", "no": "node", "pods": "pod", "po": "pod",
	"replicasets": "replicaset", "rs": "replicaset", "secrets": "secret", "services": "service", "svc": "service",
	"serviceaccounts": "serviceaccount", "sa": "serviceaccount", "statefulsets": "statefulset", "sts": "statefulset",
}

// clusterScoped are the kinds whose objects have no namespace.
var clusterScoped = []string{"egress", "egressgroup", "externalippool", "namespace", "node"}

// watchedKinds are the kinds that an agent or the controller watches.
var watchedKinds = []string{
	"egress", "egressgroup", "endpoints", "endpointslice", "externalippool", "namespace", "node", "pod", "service",
}

func parseKind(s string, allowed []string) (string, error) {
	k := strings.ToLower(s)
	if kind, ok := spellings[k]; ok {
		k = kind
	}
	if slices.Contains(allowed, k) {
		return k, nil
	}
	return "", fmt.Errorf("unknown kind %q%s allowed: %s", s, hint(s, allowed), strings.Join(allowed, ", "))
}

// parseObject reads the name of an object of a kind; one without a namespace is in default, as for kubectl.
func parseObject(kind, s string) (ObjectRef, error) {
	o := ObjectRef{Kind: kind}
	if slices.Contains(clusterScoped, kind) {
		if len(validation.IsDNS1123Subdomain(s)) > 0 {
			return o, fmt.Errorf("found %q, allowed: the NAME of a %s, which has no namespace; it is %s%s", shortened(s), kind, subdomainRule, variableHint(s))
		}
		o.Name = s
		return o, nil
	}
	name := s
	if len(validation.IsDNS1123Subdomain(s)) == 0 {
		name = "default/" + s
	}
	var err error
	if o.Namespace, o.Name, err = parseNamespaced(name); err != nil {
		return o, fmt.Errorf("%s: %w", kind, err)
	}
	return o, nil
}

// hint returns "; did you mean x?" or ";", to be followed by what is allowed.
func hint(word string, allowed []string) string {
	if h := spelling.Hint(word, allowed); h != "" {
		return h
	}
	return ";"
}

// oneOf returns the word if it is allowed.
func oneOf(s string, allowed ...string) (string, error) {
	if slices.Contains(allowed, s) {
		return s, nil
	}
	return "", fmt.Errorf("found %q%s allowed: %s", s, hint(s, allowed), strings.Join(allowed, ", "))
}

func parseBool(s string) (bool, error) {
	s, err := oneOf(s, "true", "false")
	return s == "true", err
}

// parseInt reads a decimal number of a range.
func parseInt(s string, low, high int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high || strconv.Itoa(n) != s {
		return 0, fmt.Errorf("found %q, allowed: %d to %d%s", s, low, high, variableHint(s))
	}
	return n, nil
}

func parsePort(s string) (uint16, error) {
	n, err := parseInt(s, 1, 65535)
	return uint16(n), err
}

func parseIP(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, fmt.Errorf("found %q, allowed: an IP address%s", s, variableHint(s))
	}
	return a, nil
}

// parseIPs reads A or A,B with one address of each family.
func parseIPs(s string) ([]netip.Addr, error) {
	var out []netip.Addr
	for w := range strings.SplitSeq(s, ",") {
		a, err := parseIP(w)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	if len(out) > 2 || len(out) == 2 && out[0].Is4() == out[1].Is4() {
		return nil, fmt.Errorf("found %q, allowed: one address, or one of each family", s)
	}
	return out, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Masked() != p || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("found %q, allowed: a network as 10.0.0.0/24, without host bits", s)
	}
	return p, nil
}

// maxDuration bounds every duration; it leaves room for sums.
const maxDuration = 1000 * time.Hour

func parseDuration(s string, low time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < low || d > maxDuration {
		return 0, fmt.Errorf("found %q, allowed: a duration as 100ms, 30s or 5m, from %s to %s%s", s, low, maxDuration, variableHint(s))
	}
	return d, nil
}

// formatDuration writes a duration with one unit where that is exact: seconds up to 600, else the
// largest of hours, minutes, seconds.
func formatDuration(d time.Duration) string {
	switch {
	case d == 0:
		return "0s"
	case d%time.Second == 0 && d.Abs() <= 600*time.Second:
		return fmt.Sprintf("%ds", d/time.Second)
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	case d%time.Millisecond == 0:
		return fmt.Sprintf("%dms", d/time.Millisecond)
	}
	return fmt.Sprintf("%dns", d.Nanoseconds())
}

// durationOption is formatDuration, empty for 0.
func durationOption(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return formatDuration(d)
}

// PortProto is a port that a process serves.
type PortProto struct {
	Port  uint16
	Proto string // tcp, udp, sctp
}

// String returns 8080/tcp.
func (p PortProto) String() string { return fmt.Sprintf("%d/%s", p.Port, p.Proto) }

// parseServe reads 8080/tcp,8080/udp.
func parseServe(s string) ([]PortProto, error) {
	var out []PortProto
	for w := range strings.SplitSeq(s, ",") {
		port, proto, _ := strings.Cut(w, "/")
		n, err := parsePort(port)
		if err == nil {
			proto, err = oneOf(proto, "tcp", "udp", "sctp")
		}
		if err != nil {
			return nil, fmt.Errorf("found %q, allowed: PORT/PROTO as 8080/tcp or 53/udp: %w", w, err)
		}
		if pp := (PortProto{n, proto}); !slices.Contains(out, pp) {
			out = append(out, pp)
		} else {
			return nil, fmt.Errorf("found %s twice", pp)
		}
	}
	return out, nil
}

// KeyValue is a label, an annotation, or a raw field.
type KeyValue struct{ Key, Value string }

// Bound is an expected number.
type Bound struct {
	N int
	// AtMost makes N the upper limit.
	AtMost bool
}

// Exactly and AtMost are the two bounds.
func Exactly(n int) *Bound { return &Bound{N: n} }

// AtMost is the bound <=n.
func AtMost(n int) *Bound { return &Bound{N: n, AtMost: true} }

// Holds reports whether n is within the bound.
func (b Bound) Holds(n int) bool { return n == b.N || b.AtMost && n < b.N }

// String returns N or <=N.
func (b Bound) String() string {
	if b.AtMost {
		return fmt.Sprintf("<=%d", b.N)
	}
	return fmt.Sprint(b.N)
}

// Int returns a pointer to n, for the optional counts of steps.
func Int(n int) *int { return &n }

// optBound prints KEY=N or KEY<=N.
func (p *printer) optBound(key string, b *Bound) {
	if b == nil {
		return
	}
	if b.AtMost {
		p.raw(fmt.Sprintf("%s<=%d", key, b.N))
		return
	}
	p.raw(fmt.Sprintf("%s=%d", key, b.N))
}

// optCount prints count=N if it is set.
func (p *printer) optCount(n *int) {
	if n != nil {
		p.raw(fmt.Sprintf("count=%d", *n))
	}
}

// join joins the texts of values.
func join[T fmt.Stringer](list []T, separator string) string {
	words := make([]string, len(list))
	for i := range list {
		words[i] = list[i].String()
	}
	return strings.Join(words, separator)
}

// splitList parses a comma separated list without empty and repeated entries.
func splitList[T comparable](s string, parse func(string) (T, error)) ([]T, error) {
	var out []T
	for w := range strings.SplitSeq(s, ",") {
		v, err := parse(w)
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, v) {
			return nil, fmt.Errorf("found %q twice", w)
		}
		out = append(out, v)
	}
	return out, nil
}
