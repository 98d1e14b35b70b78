// Package fidelity compares the model of the switch (towtank/sim/ovs) with the code of Open vSwitch: random
// pipelines and packets go through both, and what comes out, what is refused and learned flows must be equal; connections show in what comes out.
package fidelity
