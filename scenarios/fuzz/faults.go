package fuzz

import (
	"fmt"
	"maps"
	"slices"
)

// broken is what is out of order, and has to be healed.
type broken struct {
	off, ovsDown, silent map[string]bool
	agents               map[string]string // node or controller: stop, kill, pause
	watches, faults      map[string]bool
	skewed               map[string]bool
	cut                  bool
	lossy                map[string]bool // "A B"
	hands                bool
	failures             map[string]int // how many effects of a node fail before the next settle
}

// maxFailures is how many effects of one node fail between two settles. All may be of one object, whose back-off
// doubles from 5 s to 300 s: after seven it was tried again 10 min 15 s later, which is within a settle.
const maxFailures = 7

func (b *broken) reset() {
	*b = broken{
		off: map[string]bool{}, ovsDown: map[string]bool{}, silent: map[string]bool{}, agents: map[string]string{}, watches: map[string]bool{},
		faults: map[string]bool{}, skewed: map[string]bool{}, lossy: map[string]bool{}, failures: map[string]int{},
	}
}

var faultActions = []action{
	{topicAgents, 2, faultStream, nil, func(g *generator) { g.agent(g.node()) }},
	{topicController, 0.7, faultStream, nil, func(g *generator) { g.agent("controller") }},
	{topicOVS, 1, faultStream, nil, (*generator).ovs},
	{topicPower, 1, faultStream, nil, (*generator).power},
	{topicNetwork, 1, faultStream, nil, (*generator).cutOff},
	{topicNetwork, 0.4, faultStream, nil, (*generator).loss},
	{topicWatches, 2, faultStream, nil, (*generator).watch},
	{topicEffects, 3, faultStream, nil, (*generator).effectFails},
	{topicClocks, 0.5, faultStream, nil, (*generator).clock},
	{topicHands, 0.5, faultStream, nil, (*generator).byHand},
}

// agent does something to an agent that makes sense in its state.
func (g *generator) agent(n string) {
	op := ""
	switch g.agents[n] {
	case "":
		op = pick(g, "restart", "restart", "kill", "stop", "pause")
	case "pause":
		op = pick(g, "resume", "resume", "kill")
	default:
		op = "start"
	}
	g.add("agent %s %s", n, op)
	switch op {
	case "start", "resume", "restart":
		delete(g.agents, n)
	default:
		g.agents[n] = op
	}
}

func (g *generator) ovs() {
	n := g.node()
	op := pick(g, "restart", "restart", "kill")
	if g.ovsDown[n] {
		op = "start"
	}
	g.ovsDown[n] = op == "kill"
	g.add("ovs %s %s", n, op)
}

// power turns a node off or on, or lets its agent die in silence.
func (g *generator) power() {
	n := g.node()
	switch {
	case g.off[n] || g.silent[n]:
		as := ""
		if g.off[n] && g.opts.IP == "v4" && g.often(15) {
			as = " ip=" + g.newAddress(n)
		}
		g.add("node-up %s%s", n, as)
		g.nodeUp(n)
	case g.often(30):
		g.add("node-down %s silent", n)
		g.silent[n] = true
	default:
		g.add("node-down %s", n)
		g.off[n] = true
		maps.DeleteFunc(g.statics, func(_, on string) bool { return on == n }) // its addresses are lost
	}
}

// newAddress is one that a node comes back with: of no other node, and none of those that nodes begin with.
func (g *generator) newAddress(n string) string {
	for {
		ip := fmt.Sprintf("172.18.0.%d", g.between(30, 49))
		taken := false
		for _, other := range g.nodes {
			taken = taken || other != n && g.moved[other] == ip
		}
		if !taken {
			if g.moved == nil {
				g.moved = map[string]string{}
			}
			g.moved[n] = ip
			return ip
		}
	}
}

func (g *generator) nodeUp(n string) {
	if g.off[n] {
		delete(g.ovsDown, n) // a boot starts it; after a silent death only the agent starts
	}
	delete(g.off, n)
	delete(g.silent, n)
	delete(g.agents, n)
}

func (g *generator) cutOff() {
	if g.cut {
		g.add("heal")
		g.cut = false
		return
	}
	n := g.node()
	// With company, who is cut off still reaches the API, or the outside.
	g.add("partition %s%s", n, pick(g, " | *", " | *", " | *", " | api", " | ext", ",api | *", ",ext | *"))
	g.cut = true
}

func (g *generator) loss() {
	a := g.node()
	b := pick(g, append(slices.Clone(g.externals), g.nodes...)...)
	if a == b {
		b = g.externals[0]
	}
	g.add("loss %s %s %d", a, b, pick(g, 10, 50, 100))
	g.lossy[a+" "+b] = true
}

// watched are kinds that agents and the controller watch, by plural words of the language.
var watched = []string{"service", "endpointslice", "pod", "node", "namespace", "egress", "externalippool"}

func (g *generator) watch() {
	n := g.node()
	if g.watches[n] {
		switch g.rng.IntN(3) {
		case 0:
			g.add("watch %s release %s count=%d", n, pick(g, watched...), g.between(1, 3))
		default:
			g.add("watch %s release", n)
			delete(g.watches, n)
		}
		return
	}
	kinds := ""
	if g.often(60) {
		kinds = " " + pick(g, watched...)
	}
	g.add("watch %s %s%s", n, pick(g, "hold", "hold", "close"), kinds)
	g.watches[n] = true
}

var effectNames = []string{"switch", "switch", "switch", "ports", "meters", "flush", "iptables", "ipset", "route", "address", "link", "ipam", "api-status", "api-get", "any"}

// effectFails sets a fault on effects to come.
func (g *generator) effectFails() {
	n := g.node()
	if g.often(8) {
		n = "controller"
	}
	effect := pick(g, effectNames...)
	mode := pick(g, "refuse", "refuse", "timeout", "lost-reply", "lost-reply", "die", "die-after")
	switch {
	case effect == "api-status" && g.often(40):
		mode = "conflict"
	case effect == "ports" && g.often(40):
		mode = "late"
	}
	text := fmt.Sprintf("fail %s %s", n, effect)
	if skip := pick(g, 0, 0, 1, 2, 5); skip > 0 {
		text += fmt.Sprintf(" skip=%d", skip)
	}
	count := min(pick(g, 1, 1, 2, 4), maxFailures-g.failures[n])
	if count <= 0 {
		return
	}
	g.failures[n] += count
	if count > 1 && mode != "late" {
		text += fmt.Sprintf(" count=%d", count)
	}
	g.add("%s mode=%s", text, mode)
	g.faults[n] = true
	if mode == "die" || mode == "die-after" {
		g.agents[n] = "kill" // perhaps: starting one that runs does nothing
	}
}

func (g *generator) clock() {
	n := g.node()
	g.add("clock %s skew=%s", n, pick(g, "5s", "-5s", "1h", "-24h"))
	g.skewed[n] = true
}

// byHand is somebody at a node who types something unfortunate.
func (g *generator) byHand() {
	n := g.node()
	if g.off[n] || g.ovsDown[n] {
		return
	}
	g.add("host %s : %s", n, pick(g,
		"ovs-ofctl del-flows br-int", "ovs-ofctl del-groups br-int", "iptables -t nat -A POSTROUTING -d 203.0.113.0/24 -j MASQUERADE",
		"ovs-ofctl add-flow br-int table=0,priority=5,ip,nw_src=192.0.2.99,actions=drop",
	))
	g.hands = true
}

// heal ends everything that is out of order.
func (g *generator) heal() {
	if g.cut {
		g.add("heal")
	}
	for _, ab := range slices.Sorted(maps.Keys(g.lossy)) {
		g.add("loss %s 0", ab)
	}
	for _, n := range append(slices.Clone(g.nodes), "controller") {
		if g.faults[n] {
			g.add("fail %s clear", n)
		}
		if g.watches[n] {
			g.add("watch %s release", n)
		}
		if g.skewed[n] {
			g.add("clock %s skew=0s", n)
		}
		if g.off[n] || g.silent[n] {
			g.add("node-up %s", n)
			g.nodeUp(n)
		}
		if g.ovsDown[n] {
			g.add("ovs %s start", n)
		}
		switch g.agents[n] {
		case "pause":
			g.add("agent %s resume", n)
		case "stop", "kill":
			g.add("agent %s start", n)
		}
	}
	if g.hands {
		g.add("advance 130s") // two audits
	}
	g.reset()
}
