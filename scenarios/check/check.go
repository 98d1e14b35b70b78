// Package check holds the invariants that every scenario is checked against without writing them: what
// must be true of a world after it settled, after every effect of an agent, and at the end of a file.
package check

import (
	"fmt"
	"strings"

	"towtank/scenarios/reference"
	"towtank/sim"
)

// Result is what became of one check. Only failures are returned.
type Result struct {
	ID     int    // of the invariant, 1 to 7
	Node   string // "" if it is about no single node
	OK     bool
	Detail string
	// Want is what the reference model expects of a probe, as a scenario writes it; see Probed.
	Want string
}

// String returns the result in one line.
func (r Result) String() string {
	where := ""
	if r.Node != "" {
		where = " on " + r.Node
	}
	return fmt.Sprintf("invariant %d%s: %s", r.ID, where, r.Detail)
}

// Checker checks the invariants of one world. It is for one goroutine, as the world is.
type Checker struct {
	w        *sim.World
	opts     *reference.Options
	nodes    map[string]*seen
	count    int
	turn     int // rotates through what there is to try
	dialled  int
	restarts int    // how many agents may still be restarted dry in this check
	last     moment // of the last AfterSettle

	histories map[string]*history // by node
	badFrames map[badFrame]bool
	pending   []Result // found between two calls
	trace     uint64   // of the exchange that sent is about
	sent      []sent
	departed  map[podFamily]*departed
	ways      map[way]*sim.Node // by which node exchanges without an end of their own left since nodes were quiet last
	balancers map[string]bool   // external hosts that were load balancers as of the last settle
}

// seen is what the checker remembers of a node.
type seen struct {
	state   imprint // as of the last comparison
	dry     cause   // as of the last dry restart
	foreign []string
	hand    int
	known   bool // state, foreign and hand are set
	effects int  // as of the last step
	facts   int  // events of links, addresses and ports that the agent heard of
}

// imprint tells whether anything happened to a node that could have changed what is on it, or what its
// agent knows to be on it.
type imprint struct{ life, effects, hand, facts, pending int }

// cause tells whether anything happened that could make a restart of the agent write something.
type cause struct {
	imprint
	version uint64
	alive   string
}

// moment tells whether anything happened in the world.
type moment struct {
	events uint64
	hand   int
	set    bool
}

// New returns a checker of a world, which from then on tells it of frames and events.
func New(w *sim.World) *Checker {
	c := &Checker{
		w: w, opts: optionsOf(w), nodes: map[string]*seen{}, histories: map[string]*history{}, badFrames: map[badFrame]bool{},
		departed: map[podFamily]*departed{}, ways: map[way]*sim.Node{}, balancers: map[string]bool{},
	}
	w.OnFrame, w.BeforeTold = c.frame, c.beforeTold
	return c
}

// Count returns how many checks were made so far: a check is one invariant on one node, or one packet.
func (c *Checker) Count() int { return c.count }

func (c *Checker) of(n *sim.Node) *seen {
	s := c.nodes[n.Name()]
	if s == nil {
		s = &seen{}
		c.nodes[n.Name()] = s
	}
	return s
}

// AfterSettle checks invariants 1, 2, 3 and 5 on quiet nodes. Where nothing happened since the last call,
// nothing is checked again.
func (c *Checker) AfterSettle() []Result {
	out := c.noticed()
	now := c.moment()
	if now == c.last {
		return out
	}
	c.last = now
	clear(c.ways)
	if c.restarts == 0 {
		c.restarts = restartsPerSettle
	}
	nodes, pods := c.w.Nodes(), c.podAddresses()
	c.turn++
	for i := range nodes {
		// Another node is the first each time: it is the one whose agent is restarted dry.
		n := nodes[(i+c.turn)%len(nodes)]
		if n.Unquiet() != "" {
			continue
		}
		out = append(out, c.state(n)...)
		out = append(out, c.kept(n, pods)...)
	}
	c.restarts = 0
	c.noteBalancers()
	out = append(out, c.egress()...)
	out = append(out, c.services()...)
	return append(out, c.noticed()...)
}

func (c *Checker) moment() moment {
	now := moment{events: c.w.Events(), set: true}
	for _, n := range c.w.Nodes() {
		now.hand += n.HandVersion()
	}
	return now
}

// noticed returns what was found between calls, and by the packets of this one.
func (c *Checker) noticed() []Result {
	out := c.pending
	c.pending = nil
	return out
}

// restartsPerSettle is how many agents are restarted dry after a settle: that is what costs most. At the
// end all of them are.
const restartsPerSettle = 1

// maxNamed is how many differences one failure names.
const maxNamed = 5

// listed joins the first of many lines.
func listed(lines []string) string {
	if len(lines) > maxNamed {
		lines = append(lines[:maxNamed:maxNamed], fmt.Sprintf("… and %d more", len(lines)-maxNamed))
	}
	return strings.Join(lines, "\n  ")
}
