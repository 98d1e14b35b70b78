package scenarios

import (
	"fmt"
	"strings"
	"time"

	"towtank/scenarios/lang"
	"towtank/sim"
)

// Sweep is the result of killing agents at one position.
type Sweep struct {
	Node     string
	Position int // effects of the node's agents that came before
	Mode     sim.FaultMode
	Problems []string
}

// KillSweep runs a file once without faults, then once for every effect of every agent (and of the
// pool allocation) and each of the modes die and die-after: the agent is killed there, and started again
// a second later. Every verdict and the state at the end must be those of the undisturbed run, up to the
// names of what chance decides.
func KillSweep(file *lang.File, seed uint64, every int, report func(Sweep)) (runs int, err error) {
	base, err := sweepRun(file, seed, "", 0, "")
	if err != nil {
		return 0, err
	}
	if len(base.failed) > 0 {
		return 0, fmt.Errorf("%s fails without a fault: %s", file.Name, strings.Join(base.failed, "; "))
	}
	for _, node := range base.names {
		for pos := 0; pos < base.effects[node]; pos += max(every, 1) {
			for _, mode := range []sim.FaultMode{sim.Die, sim.DieAfter} {
				run, err := sweepRun(file, seed, node, pos, mode)
				if err != nil {
					return runs, fmt.Errorf("%s: effect %d of %s, %s: %w", file.Name, pos, node, mode, err)
				}
				runs++
				s := Sweep{Node: node, Position: pos, Mode: mode, Problems: run.failed}
				for _, n := range base.names {
					for _, d := range sim.Diff(base.state[n], run.state[n]) {
						s.Problems = append(s.Problems, n+": "+d)
					}
				}
				report(s)
			}
		}
	}
	return runs, nil
}

type sweepResult struct {
	names   []string
	effects map[string]int
	state   map[string][]string
	failed  []string
}

// restartAfter is how long a killed agent stays away.
const restartAfter = time.Second

// sweepRun runs the file with the agent of a node dying at one effect.
func sweepRun(file *lang.File, seed uint64, node string, pos int, mode sim.FaultMode) (*sweepResult, error) {
	res := &sweepResult{effects: map[string]int{}, state: map[string][]string{}}
	obs := &sweepObserver{res: res}
	var world *sim.World
	_, err := Run(file, Options{
		Seed: seed, NoEnd: true, RestartAfterDeath: restartAfter,
		Hook: func(w *sim.World) {
			world = w
			if mode != "" {
				w.OnNode(node, func(n *sim.Node) {
					w.AddFault(n, sim.Fault{Effect: "any", Skip: pos, Count: 1, Mode: mode})
				})
			}
		},
	}, obs)
	if err != nil {
		return nil, err
	}
	for _, n := range append(world.Nodes(), world.Controller()) {
		res.names = append(res.names, n.Name())
		res.effects[n.Name()] = n.Effects()
		if n != world.Controller() {
			res.state[n.Name()] = n.Fingerprint()
		}
	}
	return res, nil
}

type sweepObserver struct{ res *sweepResult }

// Step implements Observer.
func (o *sweepObserver) Step(s Step) {
	if s.Outcome == Fail {
		o.res.failed = append(o.res.failed, fmt.Sprintf("line %d: %s: got %s: %s", s.Line, s.Text, s.Got, s.Text2))
	}
}

// Invariant implements Observer.
func (o *sweepObserver) Invariant(i Invariant) {
	if !i.OK {
		o.res.failed = append(o.res.failed, fmt.Sprintf("invariant %d on %s after line %d: %s", i.ID, i.Node, i.After, i.Detail))
	}
}

// End implements Observer.
func (o *sweepObserver) End(End) {}
