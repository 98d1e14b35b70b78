package cli

import (
	"fmt"
	"strings"

	"towtank/e2e/cleanup"
	"towtank/e2e/netns"
	"towtank/e2e/ovsdummy"
	"towtank/e2e/vswitchd"
	"towtank/internal/spelling"
	"towtank/scenarios"
	"towtank/scenarios/lang"
)

// backend is a place where scenarios can run.
type backend struct {
	// run runs one file; nil if this build does not have the backend.
	run func(*lang.File, scenarios.Options, scenarios.Observer) (scenarios.End, error)
	// unable says why the backend cannot run on this machine, nil if it can.
	unable func() error
}

// backends are the backends by name. A new one is added here, when it implements run.
var backends = map[string]backend{
	"sim":      {run: scenarios.Run},
	"ovsdummy": {run: mute(ovsdummy.Run), unable: vswitchd.Available},
	"netns":    {run: mute(netns.Run), unable: netnsUnable},
}

// mute has a backend say nothing once a signal is ending the process: what fails while everything is taken down is the
// signal's doing, and no result.
func mute(run func(*lang.File, scenarios.Options, scenarios.Observer) (scenarios.End, error)) func(*lang.File, scenarios.Options, scenarios.Observer) (scenarios.End, error) {
	return func(f *lang.File, o scenarios.Options, obs scenarios.Observer) (scenarios.End, error) {
		defer unlessEnding{}.wait()
		return run(f, o, unlessEnding{obs})
	}
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

// netnsUnable says why scenarios cannot run in network namespaces here: the tools or our own programs are missing.
func netnsUnable() error {
	if err := netns.Available(); err != nil {
		return err
	}
	return netns.Programs()
}

// backendNamed returns a backend that can run here.
func backendNamed(name string) (backend, error) {
	b, ok := backends[name]
	known := false
	for _, n := range lang.Backends {
		known = known || n == name
	}
	switch {
	case !ok && !known:
		return b, wrongf("--backend: found %q, allowed: %s%s", name, strings.Join(lang.Backends, ", "), spelling.Hint(name, lang.Backends))
	case b.run == nil:
		return b, &status{exitCannot, fmt.Errorf("backend %s is not available in this build; sim is", name)}
	case b.unable != nil:
		if err := b.unable(); err != nil {
			return b, &status{exitCannot, fmt.Errorf("backend %s cannot run here: %w", name, err)}
		}
	}
	return b, nil
}
