// Package fabric models the network between nodes and external hosts: one Ethernet switch with VLANs,
// that can be partitioned, lose frames, and have ports without power.
//
//	n1 eth0 ──┐                 ┌── ext eth0        trunk ports: native VLAN untagged, others tagged
//	n2 eth0 ──┤  learns MACs    ├── lab eth0        access ports: one VLAN, untagged
//	n3 eth0 ──┘  per VLAN       └── router of a VLAN network
//
// A frame goes to the port where its destination was last seen, else to all of its VLAN. Deliveries take
// no virtual time and run one after the other on the packet.Queue that all devices share.
package fabric
