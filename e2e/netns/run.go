//go:build linux

package netns

import (
	"fmt"
	"sync"
	"time"

	"towtank/e2e/cleanup"
	"towtank/scenarios"
	"towtank/scenarios/check"
	"towtank/scenarios/lang"
	"towtank/sim/packet"
)

// maxAdvance is how much time a file may let pass: real nodes sleep.
const maxAdvance = 60 * time.Second

var swept sync.Once

// Run runs a file as scenarios.Run does, on real nodes.
func Run(f *lang.File, opts scenarios.Options, obs scenarios.Observer) (scenarios.End, error) {
	swept.Do(sweep)
	obs = unlessEnding{obs}
	// What fails while a signal takes everything down is the signal's doing: nobody is told.
	defer unlessEnding{}.wait()
	opts.Backend = "netns"
	opts.Cannot = cannot
	why, err := unable(f)
	if err != nil {
		return scenarios.End{File: f.Name, Backend: opts.Backend, Outcome: scenarios.Fail}, fmt.Errorf("%w: %w", scenarios.ErrCall, err)
	}
	if why != "" {
		end := scenarios.End{File: f.Name, Backend: opts.Backend, Seed: opts.Seed, Outcome: scenarios.Skip, Why: why}
		obs.End(end)
		return end, nil
	}
	p, err := ourPrograms()
	if err != nil {
		return scenarios.End{File: f.Name, Backend: opts.Backend, Outcome: scenarios.Fail}, fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	var c *cluster
	opts.NewTank = func(o lang.Options, _ func([]check.Result)) (t scenarios.Tank, err error) {
		c, err = newCluster(o, p)
		return c, err
	}
	defer func() {
		if c != nil {
			c.close()
		}
	}()
	return scenarios.Run(f, opts, obs)
}

// unlessEnding is an observer that hears of nothing any more once a signal is ending the process.
type unlessEnding struct{ scenarios.Observer }

func (unlessEnding) wait() {
	if cleanup.Ending() != nil {
		cleanup.Run()
	}
}

// Step implements scenarios.Observer.
func (u unlessEnding) Step(s scenarios.Step) {
	u.wait()
	u.Observer.Step(s)
}

// Stopped implements scenarios.Stopped.
func (u unlessEnding) Stopped(s scenarios.Step) {
	u.wait()
	if o, ok := u.Observer.(scenarios.Stopped); ok {
		o.Stopped(s)
	}
}

// Invariant implements scenarios.Observer.
func (u unlessEnding) Invariant(i scenarios.Invariant) {
	u.wait()
	u.Observer.Invariant(i)
}

// End implements scenarios.Observer.
func (u unlessEnding) End(e scenarios.End) {
	u.wait()
	u.Observer.End(e)
}

// cannot says why traffic to an address cannot be made.
func cannot(_ lang.Address, f scenarios.Flow) string {
	switch {
	case f.Proto == packet.ProtoSCTP:
		return "the kernel has no SCTP, and Open vSwitch's userspace datapath does not translate its ports"
	case f.Bind.IsValid():
		return "clients here bind to no address"
	case f.Proto == packet.ProtoTCP && f.Size > maxSegment:
		return "TCP cuts to the size of its segments"
	}
	return ""
}

// maxSegment is the most that a TCP packet has that is sent in one, in bytes.
const maxSegment = 1430

// unable says why a file cannot run on real nodes, "" if it can.
func unable(f *lang.File) (string, error) {
	list, err := f.Expand()
	if err != nil {
		return "", err
	}
	var advance time.Duration
	for i := range list {
		in := &list[i]
		if !in.RunsOn("netns") {
			continue
		}
		why := ""
		switch s := in.Step.(type) {
		case lang.Advance:
			if advance += s.Duration; advance > maxAdvance {
				why = fmt.Sprintf("more than %s pass in all advances of the file together, and real nodes sleep", maxAdvance)
			}
		case lang.StepEvents:
			why = "only the simulator has single events"
		case lang.Clock:
			why = "all nodes have the clock of this machine"
		case lang.Network:
			why = "the kernel has no VLAN devices"
		}
		if why != "" {
			return fmt.Sprintf("line %d: %s", in.Line.Number, why), nil
		}
	}
	return "", nil
}
