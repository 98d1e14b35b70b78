package sim

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"towtank/agent/edge"
	"towtank/datapath"
)

// Effect classes: what a node's agent does to the world, as faults name it.
const (
	EffectSwitch    = string(datapath.ClassSwitch) // a bundle of groups and flows
	EffectPorts     = string(datapath.ClassPorts)
	EffectMeters    = string(datapath.ClassMeters)
	EffectFlush     = string(datapath.ClassFlush)
	EffectIPTables  = string(datapath.ClassIPTables)
	EffectIPSet     = string(datapath.ClassIPSet)
	EffectRoute     = string(datapath.ClassRoute) // routes, rules, neighbours
	EffectAddress   = string(datapath.ClassAddress)
	EffectLink      = string(datapath.ClassLink)
	EffectIPAM      = "ipam"
	EffectAPIStatus = "api-status"
	EffectAPIGet    = "api-get"
	// Effects that no fault names, but "any" hits.
	EffectSysctl   = string(datapath.ClassSysctl)
	EffectHealth   = string(datapath.ClassHealth)
	EffectAnnounce = string(datapath.ClassAnnounce)
	EffectResolve  = string(datapath.ClassResolve)
	EffectRecord   = "record"
	// EffectDumpConntrack is no effect, for it only reads: it is neither counted nor in the journal, and "any" does
	// not hit it.
	EffectDumpConntrack = string(datapath.ClassDumpConntrack)
)

// Effects lists the classes that a fault can name.
var Effects = []string{
	EffectSwitch, EffectPorts, EffectMeters, EffectFlush, EffectIPTables, EffectIPSet, EffectRoute, EffectAddress,
	EffectLink, EffectIPAM, EffectAPIStatus, EffectAPIGet, EffectDumpConntrack,
}

// seamOf says which seam an effect is counted for: switch, host, api, or "" for those that write
// nothing that stays.
func seamOf(class string) string {
	switch class {
	case EffectSwitch, EffectPorts, EffectMeters, EffectFlush:
		return "switch"
	case EffectIPTables, EffectIPSet, EffectRoute, EffectAddress, EffectLink, EffectIPAM, EffectSysctl, EffectHealth, EffectAnnounce:
		return "host"
	case EffectAPIStatus, EffectRecord:
		return "api"
	}
	return ""
}

func classOf(k datapath.Kind) string { return string(datapath.ClassOf(k)) }

// Latencies are the declared costs of effects. What a bundle costs grows with its messages.
var latencies = map[string]time.Duration{
	EffectSwitch: time.Millisecond, EffectPorts: 3 * time.Millisecond, EffectMeters: time.Millisecond, EffectFlush: time.Millisecond,
	EffectIPTables: 5 * time.Millisecond, EffectIPSet: 2 * time.Millisecond, EffectRoute: time.Millisecond, EffectAddress: time.Millisecond,
	EffectLink: 30 * time.Millisecond, EffectIPAM: 3 * time.Millisecond, EffectAPIStatus: 5 * time.Millisecond, EffectAPIGet: 5 * time.Millisecond,
	EffectSysctl: 500 * time.Microsecond, EffectHealth: 500 * time.Microsecond, EffectAnnounce: 100 * time.Microsecond,
	EffectResolve: time.Millisecond, EffectRecord: time.Millisecond,
}

// perMessage is the cost of one message of a bundle.
const perMessage = 5 * time.Microsecond

// FaultMode is what a fault does to an effect.
type FaultMode string

// The modes; the empty one is refuse.
const (
	Refuse    FaultMode = "refuse"
	Timeout   FaultMode = "timeout"    // not done, and no answer
	LostReply FaultMode = "lost-reply" // done, but no answer
	Conflict  FaultMode = "conflict"   // of a status write
	Late      FaultMode = "late"       // of ports: no number until the fault is cleared
	Die       FaultMode = "die"        // the agent is killed before the effect
	DieAfter  FaultMode = "die-after"  // the agent is killed after the effect, before its answer
)

// Fault is a rule set by a scenario. Effects are numbered from when it was set.
type Fault struct {
	Effect string // a class, or any
	Skip   int    // effects that pass first
	Count  int    // effects that are hit then; 0 means 1
	Mode   FaultMode
	seen   int
	hits   int
}

// spent reports whether a fault has hit all that it was to hit. A late one lasts until it is cleared.
func (f *Fault) spent() bool { return f.Mode != Late && f.hits >= max(f.Count, 1) }

// String returns the fault as a scenario writes it.
func (f *Fault) String() string {
	return fmt.Sprintf("%s skip=%d count=%d mode=%s (hit %d)", f.Effect, f.Skip, max(f.Count, 1), cmp.Or(f.Mode, Refuse), f.hits)
}

// Entry is one effect in a node's journal.
type Entry struct {
	At    time.Time
	Class string
	Units []string
	// About are the Kubernetes objects of those units whose names don't say it, such as pod/NS/NAME of a
	// sandbox: those of now, and those of the unit's last effect, which a deletion undoes.
	About []string
	Text  string
	Fault FaultMode
}

var (
	errFault   = errors.New("refused by a fault of the scenario")
	errTimeout = errors.New("no answer")
)

// timeoutAfter is when a lost answer is given up.
const timeoutAfter = 2 * time.Second

// effect is one thing that an agent does to its node or to the API.
type effect struct {
	class string
	units []string
	text  string
	cost  time.Duration // 0: the declared latency of the class
	// lane serialises effects that the real world serialises; effects of different lanes may overtake
	// each other.
	lane string
	// do performs it.
	do func()
	// refuse makes the answer of an effect that was not performed; err says why, unknown that nothing
	// answered.
	refuse func(err error, unknown bool)
	// answer hands the result to the agent.
	answer func()
}

// effect has an effect happen after its latency. What the agent is told comes back as an event of its
// own lane.
func (p *proc) effect(e effect) {
	n := p.node
	w := n.world
	cost := e.cost
	if cost == 0 {
		cost = latencies[e.class]
	}
	// Latencies vary by a quarter, so that no scenario depends on one order.
	cost = cost*3/4 + time.Duration(w.scheduleRand.Int64N(int64(cost)/2+1))
	if e.class == EffectIPAM {
		// host-local takes a lock: calls are served in the order in which they come.
		begin := maxTime(w.queue.Now(), n.ipamFree)
		n.ipamFree = begin.Add(cost)
		cost = n.ipamFree.Sub(w.queue.Now())
	}
	w.queue.After(cost, edge.Work, n.name+"/"+e.lane, e.class, func() {
		if p.dead {
			return
		}
		p.happen(&e)
	})
}

func (p *proc) happen(e *effect) {
	n := p.node
	w := n.world
	mode := n.faults.Hit(e.class)
	if mode == Die {
		n.record(e, mode)
		w.killAgent(n, "fault before "+e.class)
		w.revive(n)
		return
	}
	performed := false
	switch mode {
	case "", Late, LostReply, DieAfter:
		performed = true
		n.lateNow = mode == Late
		e.do()
		n.lateNow = false
	}
	n.record(e, mode)
	if performed {
		w.afterEffect(n)
	}
	post := func(fn func()) { p.post("result "+e.class, fn) }
	switch mode {
	case "", Late:
		post(e.answer)
	case Refuse:
		post(func() { e.refuse(errFault, false) })
	case Conflict:
		post(func() { e.refuse(errConflict, false) })
	case Timeout, LostReply:
		n.unanswered++
		w.queue.After(timeoutAfter, edge.Work, n.name+"/"+e.lane, "timeout "+e.class, func() {
			n.unanswered--
			if !p.dead {
				post(func() { e.refuse(errTimeout, true) })
			}
		})
	case DieAfter:
		w.killAgent(n, "fault after "+e.class)
		w.revive(n)
	}
}

// revive starts an agent again that a fault killed, if the world is to do that.
func (w *World) revive(n *Node) {
	if w.opts.RestartAfterDeath <= 0 {
		return
	}
	w.queue.After(w.opts.RestartAfterDeath, edge.Work, n.name+"/init", "start", func() {
		if n == w.control {
			w.startController()
		} else {
			w.startAgent(n)
		}
	})
}

// Faults are those that a scenario set on one node.
type Faults []*Fault

// Hit counts an effect against the faults, and returns what happens to it: "" if nothing does.
func (fs Faults) Hit(class string) FaultMode {
	var mode FaultMode
	for _, f := range fs {
		if f.Effect != class && (f.Effect != "any" || class == EffectDumpConntrack) {
			continue
		}
		if class == EffectHealth && f.Mode != Die && f.Mode != DieAfter {
			continue // what the agent's own listener answers is nobody's to refuse
		}
		f.seen++
		if f.seen > f.Skip && !f.spent() && mode == "" {
			f.hits++
			mode = f.Mode
			if mode == "" {
				mode = Refuse
			}
		}
	}
	return mode
}

// Unused returns those that hit less than they were to hit, as a scenario writes them.
func (fs Faults) Unused() []string {
	var out []string
	for _, f := range fs {
		if f.hits < max(f.Count, 1) {
			out = append(out, f.String())
		}
	}
	return out
}

// Late reports whether one of them holds back what the effect brings about.
func (fs Faults) Late() bool {
	return slices.ContainsFunc(fs, func(f *Fault) bool { return f.Mode == Late })
}

// Unspent reports whether one of them may still hit.
func (fs Faults) Unspent() bool {
	return slices.ContainsFunc(fs, func(f *Fault) bool { return !f.spent() })
}

// record writes an effect to the journal and the log.
func (n *Node) record(e *effect, mode FaultMode) {
	n.effects++
	n.journal = append(n.journal, Entry{At: n.world.queue.Now(), Class: e.class, Units: e.units, About: n.aboutUnits(e.units), Text: e.text, Fault: mode})
	line := append(make([]string, 0, 8), e.class)
	if len(e.units) > 0 {
		line = append(line, " [", strings.Join(e.units, " "), "]")
	}
	if mode != "" {
		line = append(line, " fault=", string(mode))
	}
	if e.text != "" {
		line = append(line, " ", e.text)
	}
	n.world.log.Add(n.world.queue.Now(), "effect", n.name, line...)
}

// aboutUnits returns what units are about now and were at their last effect.
func (n *Node) aboutUnits(units []string) []string {
	var out []string
	for _, u := range units {
		switch kind, _, _ := cutUnit(u); kind {
		case "sandbox", "egressip", "podegress":
		default:
			continue
		}
		last := n.about[u]
		out = append(out, last...)
		if n.agent == nil || n.agent.loop == nil {
			continue
		}
		if now := n.agent.loop.About(u); len(now) > 0 && !slices.Equal(now, last) {
			n.about[u] = now
			out = append(out, now...)
		}
	}
	return out
}

// unitsOf returns the units of ops, each once, sorted.
func unitsOf(ops []datapath.Op) []string {
	seen := map[string]bool{}
	var out []string
	for _, op := range ops {
		for _, u := range op.Units {
			if !seen[u] {
				seen[u] = true
				out = append(out, u)
			}
		}
	}
	slices.Sort(out)
	return out
}

// maxOpsText is up to how many ops the journal and the log have in full.
const maxOpsText = 500

// opsText renders ops for the journal and the log. The log's hash covers what was written either way: of
// many ops the text is a hash.
func opsText(ops []datapath.Op) string {
	if len(ops) > maxOpsText {
		h := fnv.New64a()
		var text []byte
		for _, op := range ops {
			for _, o := range [2]datapath.Object{op.Old, op.New} {
				text = text[:0]
				if o != nil {
					text = append(text, o.String()...)
				}
				_, _ = h.Write(append(text, 0)) // a hash does not fail
			}
		}
		return fmt.Sprintf("%d ops %016x", len(ops), h.Sum64())
	}
	var few [4096]byte // as long as the text of most Changes: what is kept is a copy of the right size
	text := few[:0]
	for i, op := range ops {
		if i > 0 {
			text = append(text, "; "...)
		}
		text = op.AppendText(text)
	}
	return string(text)
}
