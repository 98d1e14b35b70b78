// Package fidelity compares the model of the switch (towtank/sim/ovs) with the code of Open vSwitch: random
// pipelines and packets go through both, and what comes out, what is refused, learned flows and tracked connections must
// be equal.
package fidelity
