// Package fidelity compares the models with the real thing on random input: the switch (towtank/sim/ovs) with the code
// of Open vSwitch, and the host (towtank/sim/host) with Linux. What is refused and what comes out must be equal, and of
// the switch learned flows and tracked connections, too. The OpenFlow codec (towtank/datapath/openflow) is compared with
// that of ovs-ofctl, in both directions.
package fidelity
