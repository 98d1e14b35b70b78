package ovsdummy

import (
	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/sim"
	simovs "towtank/sim/ovs"
	"towtank/sim/packet"
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
	opts.Cannot = cannot
	return scenarios.Run(f, opts, obs)
}

// cannot says what the userspace datapath does not do: it tracks SCTP by addresses alone and translates no
// SCTP port, so that a Service whose port is not its endpoints' does not work.
func cannot(to lang.Address, f scenarios.Flow) string {
	if f.Proto == packet.ProtoSCTP && to.IsService() {
		return "OVS's userspace datapath does not translate SCTP ports"
	}
	return ""
}
