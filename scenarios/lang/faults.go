package lang

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

var faultCommands = []command{
	{"agent", "agent N|controller|* stop|kill|start|restart|pause|resume", "stop is graceful, kill at once, pause keeps memory and sockets", parseAgent},
	{"ovs", "ovs N restart|kill|start", "vswitchd loses flows, groups, meters, conntrack; OVSDB stays", parseOVS},
	{"node-down", "node-down N [silent]", "power off; silent: only the agent dies", parseNodeDown},
	{"node-up", "node-up N [ip=A]", "boot: OVSDB and IPAM files are there, the rest is lost", parseNodeUp},
	{"partition", "partition G | G…", "cuts groups (comma lists of nodes, external hosts, api; * is the rest) from each other; replaces the old one", parsePartition},
	{"heal", "heal", "ends the partition", func(*args) Step { return Heal{} }},
	{"loss", "loss A B PERCENT", "loses packets between two nodes or external hosts", parseLoss},
	{"clock", "clock N skew=D", "the node's wall clock is off by D", parseClock},
	{"watch", "watch N|controller|* hold|close [KIND…] · watch N release [KIND…] [count=K]", "hold: late, in order; close: never, release relists", parseWatch},
	{
		"fail", "fail N|controller|* EFFECT|any [skip=K] [count=C] [mode=refuse|timeout|lost-reply|conflict|late|die|die-after] · fail N clear",
		"effects fail after the first K. EFFECT: " + strings.Join(effects, ", "), parseFail,
	},
	{"host", "host N|NS/POD : COMMAND", "somebody types ip, iptables, ipset, sysctl, conntrack, ovs-vsctl or ovs-ofctl there", parseHost},
	{"address", "address N add|del IP[/LEN]", "ip addr on the uplink", parseHostAddress},
}

// Agent is `agent N stop|kill|start|restart|pause|resume`.
type Agent struct {
	// Node may also be Controller or AllNodes.
	Node NodeRef
	Op   string
}

// Command implements Step.
func (Agent) Command() string { return "agent" }

// String implements Step.
func (s Agent) String() string { return "agent " + s.Node.String() + " " + s.Op }

func (s Agent) names(v *nameVisitor) { v.node(s.Node) }

// agents takes a node, controller or *.
func (a *args) agents() NodeRef {
	return take(a, "N", func(w string) (NodeRef, error) { return parseNode(w, Controller, AllNodes) })
}

func parseAgent(a *args) Step {
	return Agent{a.agents(), take(a, "what to do", func(w string) (string, error) {
		return oneOf(w, "stop", "kill", "start", "restart", "pause", "resume")
	})}
}

// OVS is `ovs N restart|kill|start`.
type OVS struct {
	Node NodeRef
	Op   string
}

// Command implements Step.
func (OVS) Command() string { return "ovs" }

// String implements Step.
func (s OVS) String() string { return "ovs " + s.Node.String() + " " + s.Op }

func (s OVS) names(v *nameVisitor) { v.node(s.Node) }

func parseOVS(a *args) Step {
	return OVS{take(a, "N", plainNode), take(a, "what to do", func(w string) (string, error) { return oneOf(w, "restart", "kill", "start") })}
}

// NodeDown is `node-down N [silent]`.
type NodeDown struct {
	Node NodeRef
	// Silent: only the agent dies; kernel, addresses, ARP and flows stay.
	Silent bool
}

// Command implements Step.
func (NodeDown) Command() string { return "node-down" }

// String implements Step.
func (s NodeDown) String() string {
	var p printer
	p.word("node-down", s.Node.String())
	p.flag("silent", s.Silent)
	return p.String()
}

func (s NodeDown) names(v *nameVisitor) { v.node(s.Node) }

func parseNodeDown(a *args) Step {
	s := NodeDown{Node: take(a, "N", plainNode)}
	a.options([]option{bare("silent", func() error { s.Silent = true; return nil })})
	return s
}

// NodeUp is `node-up N [ip=A]`.
type NodeUp struct {
	Node NodeRef
	// IPs are its new transport addresses; empty: as before.
	IPs []netip.Addr
}

// Command implements Step.
func (NodeUp) Command() string { return "node-up" }

// String implements Step.
func (s NodeUp) String() string {
	var p printer
	p.word("node-up", s.Node.String())
	p.opt("ip", join(s.IPs, ","))
	return p.String()
}

func (s NodeUp) names(v *nameVisitor) { v.node(s.Node) }

func parseNodeUp(a *args) Step {
	s := NodeUp{Node: take(a, "N", plainNode)}
	a.options([]option{opt("ip", func(v string) (err error) { s.IPs, err = parseIPs(v); return err })})
	return s
}

// Partition is `partition G | G…`.
type Partition struct {
	// Groups are cut from each other. Members are nodes, external hosts, API, and AllNodes for the
	// rest.
	Groups [][]NodeRef
}

// Command implements Step.
func (Partition) Command() string { return "partition" }

// String implements Step.
func (s Partition) String() string {
	var p printer
	p.word("partition")
	for i, g := range s.Groups {
		p.flag("|", i > 0)
		p.word(join(g, ","))
	}
	return p.String()
}

func (s Partition) names(v *nameVisitor) {
	for _, g := range s.Groups {
		for _, n := range g {
			v.peer(n)
		}
	}
}

func parsePartition(a *args) Step {
	var s Partition
	seen := map[NodeRef]bool{}
	for first := true; first || a.left(); first = false {
		if !first {
			a.literal("|")
		}
		group := take(a, "G", func(w string) ([]NodeRef, error) {
			return splitList(w, func(m string) (NodeRef, error) { return parseNode(m, API, AllNodes) })
		})
		for _, n := range group {
			if seen[n] {
				a.failf("%s is in two groups", n)
			}
			seen[n] = true
		}
		s.Groups = append(s.Groups, group)
	}
	a.require(len(s.Groups) > 1, "a second group after |")
	return s
}

// Heal is `heal`.
type Heal struct{}

// Command implements Step.
func (Heal) Command() string { return "heal" }

// String implements Step.
func (Heal) String() string { return "heal" }

func (Heal) names(*nameVisitor) {}

// Loss is `loss A B PERCENT`.
type Loss struct {
	A, B NodeRef
	// Percent of the packets, 0 to 100.
	Percent int
}

// Command implements Step.
func (Loss) Command() string { return "loss" }

// String implements Step.
func (s Loss) String() string { return fmt.Sprintf("loss %s %s %d", s.A, s.B, s.Percent) }

func (s Loss) names(v *nameVisitor) {
	v.peer(s.A)
	v.peer(s.B)
}

func parseLoss(a *args) Step {
	return Loss{
		take(a, "A", plainNode), take(a, "B", plainNode),
		take(a, "PERCENT", func(w string) (int, error) { return parseInt(strings.TrimSuffix(w, "%"), 0, 100) }),
	}
}

// Clock is `clock N skew=D`.
type Clock struct {
	Node NodeRef
	// Skew is added to the node's wall clock; it may be negative.
	Skew time.Duration
}

// Command implements Step.
func (Clock) Command() string { return "clock" }

// String implements Step.
func (s Clock) String() string { return "clock " + s.Node.String() + " skew=" + formatDuration(s.Skew) }

func (s Clock) names(v *nameVisitor) { v.node(s.Node) }

func parseClock(a *args) Step {
	s := Clock{Node: take(a, "N", plainNode)}
	given := false
	a.options([]option{opt("skew", func(v string) (err error) { given = true; s.Skew, err = parseDuration(v, -maxDuration); return err })})
	a.require(given, "skew=D")
	return s
}

// Watch is `watch N hold|close [KIND…]` or `watch N release [KIND…] [count=K]`.
type Watch struct {
	// Node may also be Controller or AllNodes.
	Node NodeRef
	// Op is hold, close or release.
	Op string
	// Kinds are in lower case; empty: all that the agent watches.
	Kinds []string
	// Count is how many events release delivers; 0: all.
	Count int
}

// Command implements Step.
func (Watch) Command() string { return "watch" }

// String implements Step.
func (s Watch) String() string {
	var p printer
	p.word("watch", s.Node.String(), s.Op)
	p.word(s.Kinds...)
	p.num("count", s.Count)
	return p.String()
}

func (s Watch) names(v *nameVisitor) { v.node(s.Node) }

func parseWatch(a *args) Step {
	s := Watch{Node: a.agents()}
	s.Op = take(a, "hold, close or release", func(w string) (string, error) { return oneOf(w, "hold", "close", "release") })
	for a.left() && !strings.Contains(a.words[a.pos], "=") {
		kind := take(a, "KIND", func(w string) (string, error) { return parseKind(w, watchedKinds) })
		if kind != "" && slices.Contains(s.Kinds, kind) {
			a.failf("%s is given twice", kind)
		}
		s.Kinds = append(s.Kinds, kind)
	}
	if s.Op == "release" {
		a.options([]option{opt("count", func(v string) (err error) { s.Count, err = parseInt(v, 1, maxCount); return err })})
	}
	return s
}

// effects are what fail can hit.
var effects = []string{
	"switch", "ports", "meters", "flush", "iptables", "ipset", "route", "address", "link", "ipam", "api-status", "api-get", "dump-conntrack", "any",
}

// Fail is `fail N EFFECT|any […]`, or `fail N clear` if Clear is set.
type Fail struct {
	// Node may also be Controller or AllNodes.
	Node  NodeRef
	Clear bool
	// Effect is what fails; any is every one.
	Effect string
	// Skip is how many effects pass first.
	Skip int
	// Count is how many fail; 0: 1, for mode late until clear.
	Count int
	// Mode is refuse (also if empty), timeout, lost-reply, conflict, late, die or die-after.
	Mode string
}

// Command implements Step.
func (Fail) Command() string { return "fail" }

// String implements Step.
func (s Fail) String() string {
	var p printer
	p.word("fail", s.Node.String())
	if s.Clear {
		p.word("clear")
		return p.String()
	}
	p.word(s.Effect)
	p.num("skip", s.Skip)
	p.num("count", s.Count)
	p.opt("mode", s.Mode)
	return p.String()
}

func (s Fail) names(v *nameVisitor) { v.node(s.Node) }

func parseFail(a *args) Step {
	s := Fail{Node: a.agents()}
	if a.optional("clear") {
		s.Clear = true
		return s
	}
	s.Effect = take(a, "EFFECT", func(w string) (string, error) { return oneOf(w, append(slices.Clip(effects), "clear")...) })
	a.options([]option{
		opt("skip", func(v string) (err error) { s.Skip, err = parseInt(v, 0, maxCount); return err }),
		opt("count", func(v string) (err error) { s.Count, err = parseInt(v, 1, maxCount); return err }),
		opt("mode", func(v string) (err error) {
			s.Mode, err = oneOf(v, "refuse", "timeout", "lost-reply", "conflict", "late", "die", "die-after")
			return err
		}),
	})
	if s.Mode == "late" && s.Effect != "ports" {
		a.failf("mode=late is for ports (no ofport until clear), found %s", s.Effect)
	}
	if s.Mode == "conflict" && s.Effect != "api-status" && s.Effect != "any" {
		a.failf("mode=conflict is for api-status, found %s", s.Effect)
	}
	return s
}

// Host is `host N|NS/POD : COMMAND`; one of Node and Pod is set.
type Host struct {
	Node NodeRef
	Pod  PodRef
	// Text is the command as it would be typed.
	Text string
}

// Command implements Step.
func (Host) Command() string { return "host" }

// String implements Step.
func (s Host) String() string {
	where := s.Node.String()
	if !s.Pod.IsZero() {
		where = s.Pod.String()
	}
	return "host " + where + " : " + s.Text
}

func (s Host) names(v *nameVisitor) {
	v.node(s.Node)
	v.pod(s.Pod)
}

func parseHost(a *args) Step {
	var s Host
	if where, ok := a.next("N or NS/POD"); ok {
		var err error
		if strings.Contains(where, "/") && !strings.HasPrefix(where, "owner/") {
			s.Pod, err = parsePod(where)
		} else {
			s.Node, err = plainNode(where)
		}
		if err != nil {
			a.failf("%v", err)
		}
	}
	a.literal(":")
	s.Text = a.rest
	a.require(s.Text != "", "COMMAND")
	return s
}

// HostAddress is `address N add|del IP[/LEN]`.
type HostAddress struct {
	Node NodeRef
	// Op is add or del.
	Op string
	IP netip.Addr
	// Bits is the prefix length; 0: not given, the whole address.
	Bits int
}

// Command implements Step.
func (HostAddress) Command() string { return "address" }

// String implements Step.
func (s HostAddress) String() string {
	text := s.IP.String()
	if s.Bits != 0 {
		text += fmt.Sprintf("/%d", s.Bits)
	}
	return "address " + s.Node.String() + " " + s.Op + " " + text
}

func (s HostAddress) names(v *nameVisitor) { v.node(s.Node) }

func parseHostAddress(a *args) Step {
	s := HostAddress{Node: take(a, "N", plainNode), Op: take(a, "add or del", func(w string) (string, error) { return oneOf(w, "add", "del") })}
	if w, ok := a.next("IP[/LEN]"); ok {
		ip, bits, hasBits := strings.Cut(w, "/")
		var err error
		if s.IP, err = parseIP(ip); err == nil && hasBits {
			s.Bits, err = parseInt(bits, 1, s.IP.BitLen())
		}
		if err != nil {
			a.failf("IP[/LEN]: %v", err)
		}
	}
	return s
}
