package lang

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

var kubeCommands = []command{
	{"apply", "apply FILE [expect ok|error[=TEXT]]", "creates or updates every object of FILE; with expect error, at least one is to be refused", parseApply},
	{"delete", "delete KIND NS/NAME|NAME · delete FILE", "deletes one object, or every object of FILE", parseDelete},
	{"patch", "patch KIND NS/NAME|NAME JSON", "JSON merge patch; status goes to the subresource", parsePatch},
	{"namespace", "namespace NAME [KEY=VALUE…]", "creates a Namespace; default exists", parseNamespace},
	{
		"pod", "pod NS/NAME node=N [KEY=VALUE…] [serve=8080/tcp,8080/udp] [ready=true] [ip=A[,B]] [hostNetwork=true] [add=no]",
		"creates the Pod with these labels and starts it; add=no: only the object", parsePodStep,
	},
	{"pod-start", "pod-start NS/NAME", "CNI ADD in a new sandbox", podStep(func(p PodRef) Step { return PodStart{p} })},
	{"pod-stop", "pod-stop NS/NAME", "CNI DEL; the object stays", podStep(func(p PodRef) Step { return PodStop{p} })},
	{"pod-delete", "pod-delete NS/NAME", "CNI DEL and removal of the object", podStep(func(p PodRef) Step { return PodDelete{p} })},
	{"pod-ready", "pod-ready NS/NAME true|false", "sets readiness", parsePodReady},
	{"pod-terminate", "pod-terminate NS/NAME [serving=true|false]", "sets the deletion time; it still serves, or not", parsePodTerminate},
	{
		"cni", "cni add|del|check ID NS/NAME node=N [ifname=eth0] [expect ok|error[=CODE]] · cni gc ID,…|none node=N [expect …] · cni status node=N [expect …]",
		"one bare call with container id ID", parseCNI,
	},
	{"endpoints", "endpoints NS/SVC COUNT [node=N,…]", "COUNT answering endpoints behind a Service without selector, in EndpointSlices of 100", parseEndpoints},
}

// Apply is `apply FILE`.
type Apply struct {
	File string
	// Expect is what the API is to answer; nil: ok.
	Expect *APIResult
}

// Command implements Step.
func (Apply) Command() string { return "apply" }

// String implements Step.
func (s Apply) String() string {
	var p printer
	p.word("apply", s.File)
	if s.Expect != nil {
		p.raw("expect " + s.Expect.String())
	}
	return p.String()
}

func (s Apply) names(v *nameVisitor) { v.file(s.File) }

func parseApply(a *args) Step {
	s := Apply{File: take(a, "FILE", anyWord)}
	s.Expect = a.expectAPI()
	return s
}

func anyWord(w string) (string, error) {
	if w == "" {
		return "", fmt.Errorf("found an empty word%s", variableHint(w))
	}
	return w, nil
}

// Delete is `delete KIND NS/NAME|NAME`, or `delete FILE` if File is set.
type Delete struct {
	File   string
	Object ObjectRef
}

// Command implements Step.
func (Delete) Command() string { return "delete" }

// String implements Step.
func (s Delete) String() string {
	if s.File != "" {
		return "delete " + quote(s.File)
	}
	return "delete " + s.Object.Kind + " " + s.Object.String()
}

func (s Delete) names(v *nameVisitor) { v.file(s.File) }

func parseDelete(a *args) Step {
	if len(a.words) == 2 {
		return Delete{File: take(a, "FILE", anyWord)}
	}
	return Delete{Object: a.object(Kinds)}
}

// object parses KIND NS/NAME or KIND NAME.
func (a *args) object(kinds []string) ObjectRef {
	kind := take(a, "KIND", func(w string) (string, error) { return parseKind(w, kinds) })
	if kind == "" {
		a.pos = len(a.words)
		return ObjectRef{}
	}
	return take(a, "name", func(w string) (ObjectRef, error) { return parseObject(kind, w) })
}

// Patch is `patch KIND NS/NAME JSON`.
type Patch struct {
	Object ObjectRef
	// JSON is a merge patch (RFC 7396).
	JSON string
}

// Command implements Step.
func (Patch) Command() string { return "patch" }

// String implements Step.
func (s Patch) String() string {
	return "patch " + s.Object.Kind + " " + s.Object.String() + " " + s.JSON
}

func (Patch) names(*nameVisitor) {}

func parsePatch(a *args) Step {
	s := Patch{Object: a.object(Kinds), JSON: a.rest}
	var object map[string]any
	if err := json.Unmarshal([]byte(a.rest), &object); err != nil && len(a.errs) == 0 {
		a.failf("the patch is not a JSON object: %v; usage: %s", err, a.command.usage)
	}
	return s
}

// Namespace is `namespace NAME [KEY=VALUE…]`.
type Namespace struct {
	Name   string
	Labels []KeyValue
}

// Command implements Step.
func (Namespace) Command() string { return "namespace" }

// String implements Step.
func (s Namespace) String() string {
	var p printer
	p.word("namespace", s.Name)
	p.labels(s.Labels)
	return p.String()
}

func (Namespace) names(*nameVisitor) {}

func parseNamespace(a *args) Step {
	var s Namespace
	s.Name = take(a, "NAME", func(w string) (string, error) { return w, checkName(w) })
	a.optionsOr(nil, labels(&s.Labels))
	return s
}

// Pod is `pod NS/NAME node=N [KEY=VALUE…] […]`.
type Pod struct {
	Namespace, Name string
	Node            NodeRef
	Labels          []KeyValue
	// Serve is what it serves; empty: 8080/tcp and 8080/udp.
	Serve []PortProto
	// NotReady is ready=false.
	NotReady bool
	// IPs are the addresses it gets; empty: the next ones of its node.
	IPs         []netip.Addr
	HostNetwork bool
	// NoAdd is add=no: the object is created, the Pod is not started.
	NoAdd bool
}

var podOptions = []string{"node", "serve", "ready", "ip", "hostNetwork", "add"}

// Command implements Step.
func (Pod) Command() string { return "pod" }

// String implements Step.
func (s Pod) String() string {
	var p printer
	p.word("pod", s.Namespace+"/"+s.Name)
	p.opt("node", s.Node.String())
	p.labels(s.Labels, podOptions...)
	p.opt("serve", join(s.Serve, ","))
	p.flag("ready=false", s.NotReady)
	p.opt("ip", join(s.IPs, ","))
	p.flag("hostNetwork=true", s.HostNetwork)
	p.flag("add=no", s.NoAdd)
	return p.String()
}

func (s Pod) names(v *nameVisitor) { v.node(s.Node) }

func parsePodStep(a *args) Step {
	var s Pod
	s.Namespace, s.Name = a.namespaced("NS/NAME")
	a.optionsOr([]option{
		opt("node", func(v string) (err error) { s.Node, err = plainNode(v); return err }),
		opt("serve", func(v string) (err error) { s.Serve, err = parseServe(v); return err }),
		opt("ready", func(v string) error { ready, err := parseBool(v); s.NotReady = !ready; return err }),
		opt("ip", func(v string) (err error) { s.IPs, err = parseIPs(v); return err }),
		opt("hostNetwork", func(v string) (err error) { s.HostNetwork, err = parseBool(v); return err }),
		opt("add", func(v string) error { w, err := oneOf(v, "yes", "no"); s.NoAdd = w == "no"; return err }),
	}, labels(&s.Labels))
	a.require(!s.Node.IsZero(), "node=N")
	return s
}

// require reports that something is missing, unless another mistake may be the reason.
func (a *args) require(given bool, what string) {
	if !given && len(a.errs) == 0 {
		a.failf("%s is missing; usage: %s", what, a.command.usage)
	}
}

// namespaced takes NS/NAME.
func (a *args) namespaced(what string) (ns, name string) {
	w, ok := a.next(what)
	if !ok {
		return "", ""
	}
	ns, name, err := parseNamespaced(w)
	if err != nil {
		a.failf("%s: %v", what, err)
	}
	return ns, name
}

// PodStart is `pod-start NS/NAME`.
type PodStart struct{ Pod PodRef }

// Command implements Step.
func (PodStart) Command() string { return "pod-start" }

// String implements Step.
func (s PodStart) String() string { return "pod-start " + s.Pod.String() }

func (s PodStart) names(v *nameVisitor) { v.pod(s.Pod) }

// PodStop is `pod-stop NS/NAME`.
type PodStop struct{ Pod PodRef }

// Command implements Step.
func (PodStop) Command() string { return "pod-stop" }

// String implements Step.
func (s PodStop) String() string { return "pod-stop " + s.Pod.String() }

func (s PodStop) names(v *nameVisitor) { v.pod(s.Pod) }

// PodDelete is `pod-delete NS/NAME`.
type PodDelete struct{ Pod PodRef }

// Command implements Step.
func (PodDelete) Command() string { return "pod-delete" }

// String implements Step.
func (s PodDelete) String() string { return "pod-delete " + s.Pod.String() }

func (s PodDelete) names(v *nameVisitor) { v.pod(s.Pod) }

// podStep parses a command whose only word is a Pod.
func podStep(build func(PodRef) Step) func(*args) Step {
	return func(a *args) Step { return build(take(a, "NS/NAME", parsePod)) }
}

// PodReady is `pod-ready NS/NAME true|false`.
type PodReady struct {
	Pod   PodRef
	Ready bool
}

// Command implements Step.
func (PodReady) Command() string { return "pod-ready" }

// String implements Step.
func (s PodReady) String() string { return fmt.Sprintf("pod-ready %s %t", s.Pod, s.Ready) }

func (s PodReady) names(v *nameVisitor) { v.pod(s.Pod) }

func parsePodReady(a *args) Step {
	return PodReady{take(a, "NS/NAME", parsePod), take(a, "true or false", parseBool)}
}

// PodTerminate is `pod-terminate NS/NAME [serving=true|false]`.
type PodTerminate struct {
	Pod PodRef
	// NotServing is serving=false; else it still serves.
	NotServing bool
}

// Command implements Step.
func (PodTerminate) Command() string { return "pod-terminate" }

// String implements Step.
func (s PodTerminate) String() string {
	var p printer
	p.word("pod-terminate", s.Pod.String())
	p.flag("serving=false", s.NotServing)
	return p.String()
}

func (s PodTerminate) names(v *nameVisitor) { v.pod(s.Pod) }

func parsePodTerminate(a *args) Step {
	s := PodTerminate{Pod: take(a, "NS/NAME", parsePod)}
	a.options([]option{opt("serving", func(v string) error { serving, err := parseBool(v); s.NotServing = !serving; return err })})
	return s
}

// CNI is `cni add|del|check ID NS/NAME node=N …`, `cni gc ID,…|none node=N` or `cni status node=N`.
type CNI struct {
	// Op is add, del, check, gc or status.
	Op string
	// ID is the container id of add, del and check.
	ID  string
	Pod PodRef
	// Keep are the container ids that gc keeps; empty is none.
	Keep []string
	Node NodeRef
	// IfName is the interface; empty: eth0.
	IfName string
	Expect *CNIResult
}

// Command implements Step.
func (CNI) Command() string { return "cni" }

// String implements Step.
func (s CNI) String() string {
	var p printer
	p.word("cni", s.Op)
	switch {
	case s.Op == "gc" && len(s.Keep) == 0:
		p.word("none")
	case s.Op == "gc":
		p.word(strings.Join(s.Keep, ","))
	case s.Op != "status":
		p.word(s.ID, s.Pod.String())
	}
	p.opt("node", s.Node.String())
	p.opt("ifname", s.IfName)
	if s.Expect != nil {
		p.word("expect", s.Expect.String())
	}
	return p.String()
}

func (s CNI) names(v *nameVisitor) {
	v.pod(s.Pod)
	v.node(s.Node)
}

func parseCNI(a *args) Step {
	var s CNI
	s.Op = take(a, "add, del, check, gc or status", func(w string) (string, error) { return oneOf(w, "add", "del", "check", "gc", "status") })
	opts := []option{opt("node", func(v string) (err error) { s.Node, err = plainNode(v); return err })}
	switch s.Op {
	case "add", "del", "check":
		s.ID = take(a, "ID", containerID)
		s.Pod = take(a, "NS/NAME", parsePod)
		opts = append(opts, opt("ifname", func(v string) error { s.IfName = v; return checkIfName(v) }))
	case "gc":
		s.Keep = take(a, "ID,… or none", func(w string) ([]string, error) {
			if w == "none" {
				return nil, nil
			}
			return splitList(w, containerID)
		})
	case "":
		return nil
	}
	a.options(opts)
	s.Expect = a.expectCNI()
	a.require(!s.Node.IsZero(), "node=N")
	return s
}

// containerID accepts what the CNI specification does: letters, digits, and _ . - after the first.
func containerID(s string) (string, error) {
	ok := s != "" && s != "none" && len(s) <= 128
	for i, r := range s {
		alnum := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		ok = ok && (alnum || i > 0 && strings.ContainsRune("_.-", r))
	}
	if !ok {
		return "", fmt.Errorf("found %q, allowed: a container id of letters, digits, _, . and -%s", s, variableHint(s))
	}
	return s, nil
}

// checkIfName accepts what Linux takes as the name of a device.
func checkIfName(s string) error {
	if s == "" || len(s) > 15 || s == "." || s == ".." || strings.ContainsAny(s, "/: \t") {
		return fmt.Errorf("found %q, allowed: the name of a device, at most 15 bytes without / : and blanks", s)
	}
	return nil
}

// Endpoints is `endpoints NS/SVC COUNT [node=N,…]`.
type Endpoints struct {
	Namespace, Service string
	Count              int
	// Nodes are where they are, in turn; empty: all nodes.
	Nodes []NodeRef
}

// Command implements Step.
func (Endpoints) Command() string { return "endpoints" }

// String implements Step.
func (s Endpoints) String() string {
	var p printer
	p.word("endpoints", s.Namespace+"/"+s.Service, fmt.Sprint(s.Count))
	p.opt("node", join(s.Nodes, ","))
	return p.String()
}

func (s Endpoints) names(v *nameVisitor) {
	for _, n := range s.Nodes {
		v.node(n)
	}
}

func parseEndpoints(a *args) Step {
	var s Endpoints
	s.Namespace, s.Service = a.namespaced("NS/SVC")
	s.Count = take(a, "COUNT", func(w string) (int, error) { return parseInt(w, 0, maxEndpoints) })
	a.options([]option{opt("node", func(v string) (err error) { s.Nodes, err = splitList(v, plainNode); return err })})
	return s
}

// maxEndpoints bounds the endpoints of one Service.
const maxEndpoints = 10_000
