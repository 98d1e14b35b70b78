package lang

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

var topologyCommands = []command{
	{"backends", "backends NAME…", "first line: the file runs only there and is skipped elsewhere", parseBackends},
	{
		"option", "option KEY=VALUE…",
		"before nodes: ip=v4|v6|dual traffic=encap|noEncap|hybrid tunnel=geneve|vxlan proxyAll proxyLoadBalancerIPs " +
			"maxEgressIPsPerNode skipServices=NS/NAME,… loadBalancerMode=nat|dsr nodePortAddresses=CIDR,… podCIDRSize serviceCIDR=CIDR[,CIDR] " +
			"membership=local|egressgroup memberTimeout memberRejoin auditEvery",
		parseOption,
	},
	{"nodes", "nodes NAME…", "the k-th node has 172.18.0.(10+k), fd00:18::(10+k) and the Pod networks 10.10.k.0/24, fd00:10:k::/64", parseNodes},
	{
		"external", "external NAME [ip=A[,B]] [net=NET] [serve=8080/tcp,8080/udp] [next=N]",
		"a host outside the cluster on the nodes' subnet, the k-th at 172.18.0.(100+k), fd00:18::(100+k); next is the node it sends to what nobody on its link answers for",
		parseExternal,
	},
	{"network", "network NET cidr=C vlan=V", "a VLAN on the nodes' uplinks, with a router at its first address", parseNetwork},
	{"label", "label node/N KEY=VALUE…|KEY-", "sets and removes labels of a node", parseLabel},
	{"annotate", "annotate node/N KEY=VALUE…|KEY-", "sets and removes annotations of a node", parseAnnotate},
}

// BackendList is `backends NAME…`.
type BackendList struct{ Names []string }

// Command implements Step.
func (BackendList) Command() string { return "backends" }

// String implements Step.
func (s BackendList) String() string {
	var p printer
	p.word("backends")
	p.word(s.Names...)
	return p.String()
}

func (BackendList) names(*nameVisitor) {}

func parseBackends(a *args) Step {
	var s BackendList
	for first := true; first || a.left(); first = false {
		name := take(a, "NAME", func(w string) (string, error) { return oneOf(w, Backends...) })
		if name != "" && slices.Contains(s.Names, name) {
			a.failf("%s is given twice", name)
		}
		s.Names = append(s.Names, name)
	}
	return s
}

// Nodes is `nodes NAME…`.
type Nodes struct{ Names []string }

// Command implements Step.
func (Nodes) Command() string { return "nodes" }

// String implements Step.
func (s Nodes) String() string {
	var p printer
	p.word("nodes")
	p.word(s.Names...)
	return p.String()
}

func (Nodes) names(*nameVisitor) {}

func parseNodes(a *args) Step {
	var s Nodes
	for first := true; first || a.left(); first = false {
		name := take(a, "NAME", func(w string) (string, error) { return w, checkHostName(w) })
		if name != "" && slices.Contains(s.Names, name) {
			a.failf("%s is given twice", name)
		}
		s.Names = append(s.Names, name)
	}
	if len(s.Names) > MaxNodes {
		a.failf("found %d nodes, allowed: at most %d, the addresses that the plan has for nodes", len(s.Names), MaxNodes)
	}
	return s
}

// External is `external NAME [ip=A[,B]] [net=NET] [serve=…] [next=N]`.
type External struct {
	Name string
	// IPs are its addresses; empty: the next of the plan.
	IPs []netip.Addr
	// Net is the network it is in; empty: the nodes' subnet.
	Net string
	// Serve is what it serves; empty: 8080/tcp and 8080/udp.
	Serve []PortProto
	// Next is the node it sends to what nobody on its link answers for; empty: the first.
	Next NodeRef
}

// Command implements Step.
func (External) Command() string { return "external" }

// String implements Step.
func (s External) String() string {
	var p printer
	p.word("external", s.Name)
	p.opt("ip", join(s.IPs, ","))
	p.opt("net", s.Net)
	p.opt("serve", join(s.Serve, ","))
	p.opt("next", s.Next.String())
	return p.String()
}

func (s External) names(v *nameVisitor) {
	v.network(s.Net)
	v.node(s.Next)
}

func parseExternal(a *args) Step {
	var s External
	s.Name = take(a, "NAME", func(w string) (string, error) { return w, checkHostName(w) })
	a.options([]option{
		opt("ip", func(v string) (err error) { s.IPs, err = parseIPs(v); return err }),
		opt("net", func(v string) error { s.Net = v; return checkHostName(v) }),
		opt("serve", func(v string) (err error) { s.Serve, err = parseServe(v); return err }),
		opt("next", func(v string) (err error) { s.Next, err = plainNode(v); return err }),
	})
	return s
}

// Network is `network NET cidr=C vlan=V`.
type Network struct {
	Name string
	CIDR netip.Prefix
	// VLAN is 1 to 4094.
	VLAN int
}

// Command implements Step.
func (Network) Command() string { return "network" }

// String implements Step.
func (s Network) String() string {
	var p printer
	p.word("network", s.Name)
	p.opt("cidr", s.CIDR.String())
	p.num("vlan", s.VLAN)
	return p.String()
}

func (Network) names(*nameVisitor) {}

func parseNetwork(a *args) Step {
	var s Network
	s.Name = take(a, "NET", func(w string) (string, error) { return w, checkHostName(w) })
	a.options([]option{
		opt("cidr", func(v string) (err error) { s.CIDR, err = parsePrefix(v); return err }),
		opt("vlan", func(v string) (err error) { s.VLAN, err = parseInt(v, 1, 4094); return err }),
	})
	if len(a.errs) == 0 && (!s.CIDR.IsValid() || s.VLAN == 0) {
		a.failf("cidr= or vlan= is missing; usage: %s", a.command.usage)
	}
	return s
}

// KeyChange sets a label or annotation, or removes it.
type KeyChange struct {
	Key, Value string
	Remove     bool
}

func (c KeyChange) print(p *printer) {
	if c.Remove {
		p.word(c.Key + "-")
		return
	}
	p.raw(quoteOption(c.Key, "=", c.Value))
}

// Label is `label node/N KEY=VALUE…|KEY-`.
type Label struct {
	Node    NodeRef
	Changes []KeyChange
}

// Command implements Step.
func (Label) Command() string { return "label" }

// String implements Step.
func (s Label) String() string { return printChanges("label", s.Node, s.Changes) }

func (s Label) names(v *nameVisitor) { v.node(s.Node) }

func parseLabel(a *args) Step {
	node, changes := a.keyChanges(false)
	return Label{node, changes}
}

// Annotate is `annotate node/N KEY=VALUE…|KEY-`.
type Annotate struct {
	Node    NodeRef
	Changes []KeyChange
}

// Command implements Step.
func (Annotate) Command() string { return "annotate" }

// String implements Step.
func (s Annotate) String() string { return printChanges("annotate", s.Node, s.Changes) }

func (s Annotate) names(v *nameVisitor) { v.node(s.Node) }

func parseAnnotate(a *args) Step {
	node, changes := a.keyChanges(true)
	return Annotate{node, changes}
}

func printChanges(command string, node NodeRef, changes []KeyChange) string {
	var p printer
	p.word(command, "node/"+node.String())
	for _, c := range changes {
		c.print(&p)
	}
	return p.String()
}

// keyChanges parses node/N KEY=VALUE…|KEY-.
func (a *args) keyChanges(annotation bool) (node NodeRef, changes []KeyChange) {
	node = take(a, "node/N", func(w string) (NodeRef, error) {
		addr, err := ParseAddress(w)
		if err != nil || addr.Kind != AddrNode {
			meant := ""
			if slices.Contains(a.nodes, w) {
				meant = fmt.Sprintf("; did you mean %q?", "node/"+w)
			}
			return NodeRef{}, fmt.Errorf("found %q, allowed: node/N%s", w, meant)
		}
		return addr.Node, nil
	})
	for first := true; first || a.left(); first = false {
		c := take(a, "KEY=VALUE or KEY-", func(w string) (c KeyChange, err error) {
			var set bool
			if c.Key, c.Value, set = strings.Cut(w, "="); !set {
				if c.Key, c.Remove = strings.CutSuffix(w, "-"); !c.Remove {
					return c, fmt.Errorf("found %q, allowed: KEY=VALUE, KEY-", w)
				}
			}
			return c, checkLabel(c.Key, c.Value, annotation)
		})
		if c.Key != "" && slices.ContainsFunc(changes, func(o KeyChange) bool { return o.Key == c.Key }) {
			a.failf("%s is given twice", c.Key)
		}
		changes = append(changes, c)
	}
	return node, changes
}
