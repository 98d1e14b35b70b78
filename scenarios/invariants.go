package scenarios

import "towtank/scenarios/check"

// maxInvariantReports is how many failures of one invariant are told after one step.
const maxInvariantReports = 5

// checkInvariants checks what must hold whenever things have settled.
func (r *Runner) checkInvariants() { r.report(r.tank.Invariants().AfterSettle()) }

func (r *Runner) report(results []check.Result) {
	told := map[int]int{}
	for _, c := range results {
		if !c.OK {
			r.failed++
			if told[c.ID]++; told[c.ID] > maxInvariantReports {
				continue
			}
		}
		r.tank.Note("invariant", c.Detail)
		r.obs.Invariant(Invariant{ID: c.ID, Node: c.Node, After: r.line, OK: c.OK, Detail: c.Detail, Want: c.Want})
	}
}

// end does what ends every file: everything is healed, settled and deleted, and nothing may be left.
func (r *Runner) end() error {
	for _, s := range r.stream {
		s.Stop()
	}
	for _, c := range r.conns {
		c.Close()
	}
	r.report(r.tank.Invariants().End(r.keep))
	return nil
}
