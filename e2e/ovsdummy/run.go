package ovsdummy

import (
	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/sim"
	simovs "towtank/sim/ovs"
)

// Run runs a file as scenarios.Run does, with Open vSwitch's code in the nodes' switches.
func Run(f *lang.File, opts scenarios.Options, obs scenarios.Observer) (scenarios.End, error) {
	var all []*Switch
	defer func() {
		for _, s := range all {
			s.Close()
		}
	}()
	opts.Backend = "ovsdummy"
	opts.NewSwitch = func(node string, c simovs.Config) (sim.Switch, error) {
		s, err := New(node, c)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
		return s, nil
	}
	return scenarios.Run(f, opts, obs)
}
