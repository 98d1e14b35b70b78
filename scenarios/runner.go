package scenarios

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"towtank/scenarios/check"
	"towtank/scenarios/lang"
	"towtank/sim"
	"towtank/sim/ovs"
)

// Options says how a file is run.
type Options struct {
	Seed uint64
	// LogTo, if set, gets the event log.
	LogTo io.Writer
	// StopAfter, if positive, ends the run after that many steps, without the end of file: for looking.
	StopAfter int
	// NoEnd leaves the checks of the end of file out (trace and dump commands).
	NoEnd bool
	// RestartAfterDeath, if positive, starts an agent again that a fault killed, after that time.
	RestartAfterDeath time.Duration
	// Backend is the name of what runs the file; "": sim. NewSwitch makes its switches; nil: the model.
	Backend   string
	NewSwitch func(node string, c ovs.Config) (sim.Switch, error)
	// Cannot, if set, says why the backend cannot carry traffic to an address; steps with such are skipped.
	Cannot func(to lang.Address, f Flow) (reason string)
	// CheckProbes compares probes that expect nothing with the reference model, where nothing has
	// happened since a settle.
	CheckProbes bool
	// Hook, if set, is called with the world once it exists.
	Hook func(*sim.World)
	// NewTank makes another tank than the simulator, to which the fields above this one but Seed, StopAfter
	// and NoEnd mean nothing then. What found tells is broken is reported as after a settle.
	NewTank func(o lang.Options, found func([]check.Result)) (Tank, error)
}

// Runner runs one file.
type Runner struct {
	file   *lang.File
	opts   Options
	obs    Observer
	lopts  lang.Options
	tank   Tank // nil until it is needed
	keep   bool
	named  map[string]*named // probes and connections by name
	conns  map[string]Conn
	stream map[string]Stream
	cni    map[string]string
	// cannot has the names of connections and streams that were skipped, with the reason.
	cannot map[string]string
	failed int
	steps  int
	line   int // of the step that runs
	// refused are the changes that the API did not take. The file goes on, and has not run as it is written.
	refused []error
}

// named is what a probe or connection with a name experienced last.
type named struct {
	backend string // namespace/name, or node/N, or an external
	port    uint16
}

// errCall is a step that cannot be done as it is written: exit status 2.
type errCall struct{ err error }

// Error implements error.
func (e errCall) Error() string { return e.err.Error() }

// Unwrap implements errors.Unwrap.
func (e errCall) Unwrap() error { return e.err }

// errRefused is a change that the API server did not take. What follows in the file still runs, as after a kubectl
// that failed; in the end the exit status is 2.
type errRefused struct{ err error }

// Error implements error.
func (e errRefused) Error() string { return e.err.Error() }

// Unwrap implements errors.Unwrap.
func (e errRefused) Unwrap() error { return e.err }

// errSkipped is a step about what a skipped step would have made: it is skipped, too.
type errSkipped struct{ why string }

// Error implements error.
func (e errSkipped) Error() string { return e.why }

// asCall returns an error of the tank as one of the call, unless it is the tank's own.
func asCall(err error) error {
	if err == nil || errors.Is(err, ErrTank) {
		return err
	}
	return errCall{err}
}

func callErrorf(format string, args ...any) error { return errCall{fmt.Errorf(format, args...)} }

// LineError says at which line a file could not go on.
type LineError struct {
	File string
	Line int
	Step string
	Err  error
}

// Error implements error.
func (e *LineError) Error() string {
	return fmt.Sprintf("%s:%d: %s: %v", e.File, e.Line, e.Step, e.Err)
}

// Unwrap implements errors.Unwrap.
func (e *LineError) Unwrap() error { return e.Err }

// ErrCall is returned by Run for a file that cannot be run as it is written.
var ErrCall = errors.New("the scenario cannot be run as it is written")

// Run runs a file and returns its end. The error is ErrCall with the reason, or a fault of the tank.
func Run(file *lang.File, opts Options, obs Observer) (End, error) {
	started := time.Now()
	r := &Runner{
		file: file, opts: opts, obs: obs, lopts: file.Options(), named: map[string]*named{}, conns: map[string]Conn{},
		stream: map[string]Stream{}, cni: map[string]string{}, cannot: map[string]string{},
	}
	where := ""
	if opts.Backend == "" {
		r.opts.Backend = "sim"
	} else if opts.Backend != "sim" {
		where = "--backend " + opts.Backend + " "
	}
	end := End{File: file.Name, Backend: r.opts.Backend, Seed: opts.Seed, Replay: fmt.Sprintf("towtank run %s--seed %d %s", where, opts.Seed, file.Name)}
	if b := file.Backends(); len(b) > 0 && !slices.Contains(b, r.opts.Backend) {
		end.Outcome, end.Why = Skip, "for "+strings.Join(b, " and ")+" only"
		obs.End(end)
		return end, nil
	}
	err := r.run()
	if r.tank != nil {
		end.Time, end.LogHash = r.tank.Now(), r.tank.LogHash()
		end.FaultsUnused = r.tank.UnusedFaults()
	}
	end.Steps, end.Failed = r.steps, r.failed
	end.Wall = time.Since(started)
	end.Outcome, end.Err = Pass, err
	if r.failed > 0 || err != nil {
		end.Outcome = Fail
	}
	obs.End(end)
	var call errCall
	if errors.As(err, &call) {
		return end, fmt.Errorf("%w: %w", ErrCall, err)
	}
	return end, err
}

func (r *Runner) run() error {
	list, err := r.file.Expand()
	if err != nil {
		return errCall{err}
	}
	for i := range list {
		in := &list[i]
		r.line = in.Line.Number
		if r.opts.StopAfter > 0 && r.steps >= r.opts.StopAfter {
			return nil
		}
		if err := r.instance(i, in); err != nil {
			return errors.Join(append(r.refused, r.located(in, err))...)
		}
	}
	if r.tank != nil && !r.opts.NoEnd {
		if err := r.end(); err != nil {
			return err
		}
	}
	if len(r.refused) > 0 {
		return errCall{errors.Join(r.refused...)}
	}
	return nil
}

// located adds where a step stands to its error.
func (r *Runner) located(in *lang.Instance, err error) error {
	return &LineError{File: r.file.Name, Line: in.Line.Number, Step: in.Step.String(), Err: err}
}

// instance does one step and reports it.
func (r *Runner) instance(index int, in *lang.Instance) error {
	s := Step{File: r.file.Name, Line: in.Line.Number, Index: index, Text: in.Step.String()}
	for _, b := range in.Iter {
		if s.Iter == nil {
			s.Iter = map[string]string{}
		}
		s.Iter[b.Var] = b.Value
	}
	if !in.RunsOn(r.opts.Backend) {
		s.Outcome = Skip
		r.obs.Step(s)
		return nil
	}
	r.steps++
	s.Outcome = Pass
	if r.tank != nil {
		r.tank.BeginStep(s.Text)
		r.tank.Note(fmt.Sprint(in.Line.Number), s.Text)
	}
	err := r.do(in, &s)
	if r.tank != nil {
		s.Time = r.tank.Now()
		for _, p := range r.tank.Problems() {
			s.Outcome, s.Text2 = Fail, strings.TrimSpace(s.Text2+"\n"+"in the model: "+p)
		}
		r.tank.Note(fmt.Sprint(in.Line.Number), string(s.Outcome)+" "+s.Got.String())
	}
	var skipped errSkipped
	if errors.As(err, &skipped) {
		s.skip(skipped.why)
		err = nil
	}
	var refusal errRefused
	if errors.As(err, &refusal) {
		s.fail("%v", refusal)
		r.refused = append(r.refused, r.located(in, refusal))
		err = nil
	}
	if err != nil {
		r.failed++
		if o, ok := r.obs.(Stopped); ok {
			s.fail("%v", err)
			o.Stopped(s)
		}
		return err
	}
	if s.Outcome == Fail {
		r.failed++
	}
	r.obs.Step(s)
	if _, ok := in.Step.(lang.Settle); ok {
		r.checkInvariants()
	}
	return nil
}

// fail marks a step as failed.
func (s *Step) fail(format string, args ...any) {
	s.Outcome = Fail
	s.Text2 = strings.TrimSpace(s.Text2 + "\n" + fmt.Sprintf(format, args...))
}

// makeTank makes the tank from the options when it is first needed.
func (r *Runner) makeTank() error {
	if r.tank != nil {
		return nil
	}
	build := r.opts.NewTank
	if build == nil {
		build = r.simulate
	}
	t, err := build(r.lopts, r.report)
	if err != nil {
		return asCall(err)
	}
	r.tank = t
	return nil
}

// do does one step.
func (r *Runner) do(in *lang.Instance, s *Step) error {
	if err := r.makeTank(); err != nil {
		return err
	}
	switch st := in.Step.(type) {
	case lang.BackendList, lang.Option:
		return nil
	case lang.Keep:
		r.keep = true
		return nil
	case lang.Nodes, lang.External, lang.Network, lang.Label, lang.Annotate:
		return r.topology(st)
	case lang.Apply, lang.Delete, lang.Patch, lang.Namespace, lang.Endpoints:
		return r.objects(in, st, s)
	case lang.Pod, lang.PodStart, lang.PodStop, lang.PodDelete, lang.PodReady, lang.PodTerminate:
		return r.pods(st, s)
	case lang.CNI:
		return r.cniCall(st, s)
	case lang.Settle, lang.Advance, lang.StepEvents:
		return r.time(st, s)
	case lang.Probe:
		return r.probe(st, s)
	case lang.Open, lang.Close, lang.Send:
		return r.connection(st, s)
	case lang.Stream, lang.StreamStop:
		return r.streams(st, s)
	case lang.Inject:
		return r.inject(st, s)
	case lang.Agent, lang.OVS, lang.NodeDown, lang.NodeUp, lang.Partition, lang.Heal, lang.Loss, lang.Clock, lang.Watch, lang.Fail:
		return r.faults(st)
	case lang.Host, lang.HostAddress:
		return r.host(st, s)
	case lang.Mark:
		r.tank.Mark()
		return nil
	default:
		return r.look(in.Step, s)
	}
}
