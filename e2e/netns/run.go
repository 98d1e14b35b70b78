//go:build linux

package netns

import (
	"fmt"
	"sync"
	"time"

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
