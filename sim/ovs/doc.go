// Package ovs models one Open vSwitch bridge: OpenFlow tables, groups, meters, connection tracking and
// OVSDB ports, in memory, deterministic and on the caller's time.
//
//	               ApplyPorts ApplyMeters ApplyBundle         Tick, NextDeadline
//	                    │          │          │                      │
//	Receive ────► extract ► tables ► actions ► groups ► learn   timers (flows, connections)
//	ReceiveTunnel   (key)    (tuple     │  ▲
//	PacketOut                 space)    ct ┘ conntrack: zones, NAT, recirculation
//	                                    └──► Output, Tunnel, PacketIn
//
// A packet becomes a flat key of words (layout.go, extract.go); flows match words under masks (table.go)
// and actions change words (pipeline.go); the packet is put together again where it leaves.
//
// Files: switch.go (Config, New, Stop, Start, Restart), ports.go, bundle.go (atomic bundles), meter.go,
// table.go (lookup), pipeline.go (actions), group.go, learn.go, normal.go, conntrack.go, connstate.go
// (protocol states and timeouts), nat.go, dump.go, timers.go.
//
// What a flow, group or port asks for and the model does not have is refused with its text. What OVS
// refuses is refused with OVS's error name; what it accepts is accepted, to the point of dropping
// packets to ports that are not there. Choices that OpenFlow leaves open (two flows of one priority
// that match) are always made in the same way.
//
// Inspect: SetTracer, DumpText, ConntrackText, BucketPackets, Counters. Benchmark:
// go test -bench . ./sim/ovs
package ovs
