package scenarios

import (
	"strings"

	"towtank/scenarios/lang"
	"towtank/sim"
)

// inject sends one raw packet. ok: it left a switch by a port; drop: it left by none, and changed no
// neighbour entry anywhere.
func (r *Runner) inject(st lang.Step, s *Step) error {
	t := st.(lang.Inject)
	src, err := r.source(t.From)
	if err != nil {
		return r.soft(s, err)
	}
	var fields []sim.Field
	for _, f := range t.Fields {
		fields = append(fields, sim.Field{Name: f.Key, Value: f.Value})
	}
	var res sim.Injected
	steps := r.tank.Traced(func() { res, err = r.tank.Inject(src, fields) })
	if err != nil {
		return asCall(err)
	}
	got := sim.Drop
	if res.Left || len(res.Changed) > 0 || res.Result.Arrived {
		got = sim.OK
	}
	s.Got = gotOf([]sim.Result{res.Result})
	s.Got.Verdict, s.Got.Sent, s.Got.Lost = string(got), 0, 0
	if len(res.Changed) > 0 {
		s.Got.Note = "changed " + strings.Join(res.Changed, "; ")
	}
	if t.Expect == nil {
		return nil
	}
	res.Result.Verdict = got
	s.Want = map[string]string{"expect": strings.TrimPrefix(lang.ExpectText(t.Expect), "expect ")}
	if why := r.compare(t.Expect, res.Result); why != "" {
		s.fail("%s", why)
		s.Trace = steps
	}
	return nil
}
