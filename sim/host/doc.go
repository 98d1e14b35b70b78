// Package host models a Linux network namespace: that of a node, of a Pod or of an external host. It is
// synchronous and deterministic: no goroutines, no clock of its own.
//
//	           Receive                                     Send
//	              │                                          │
//	  upper ◄─────┤ (a switch reads the device)           routing, source address
//	   guard drops│                                          │
//	VLAN, MAC, ARP, ND                                    OUTPUT: raw, conntrack, mangle, nat, filter
//	              │                                          │   (routed again if mark or address changed)
//	PREROUTING: raw, conntrack, mangle, nat                  │
//	              │                                          │
//	routing (policy rules, rp_filter) ──► FORWARD: mangle, filter
//	              │                                      │   │
//	INPUT: mangle, filter, nat            POSTROUTING: mangle, nat, conntrack confirms
//	              │                                          │
//	listeners, client sockets, echo       neighbour table, MTU ──► link: veth, VLAN, transmit
//
// What it does as Linux does: primary and secondary addresses and promote_secondaries; connected and
// local routes, an address on a link that is down; policy rules with marks; source address selection
// (RFC 6724 for IPv6); ARP and neighbour discovery with their states and timers; conntrack with NAT
// both ways, related ICMP and the kernel's timeouts; skb and connection marks; iptables and ipsets;
// rp_filter, arp_ignore, arp_announce, arp_accept, proxy_arp, proxy_ndp, forwarding.
//
// Simplifications, each of them on purpose:
//   - The fragments of a packet larger than the MTU without DF stay together: they are one packet that
//     knows the length of the longest.
//   - Nobody sends from an IPv6 link-local address unless people assign one; neighbour solicitations of a
//     router use the EUI-64 one. Duplicate address detection takes no time and finds nothing. Neighbour
//     discovery does not pass ip6tables.
//   - A closed SCTP port answers with ICMP port unreachable (not ABORT).
//   - TCP is SYN, SYN+ACK, ACK, data with PSH or a payload, FIN, RST; no retransmission.
//   - A health check answers in its SYN+ACK already, so that a probe of one packet sees the status.
//
// What is not modelled is an error with its text: a match, target, option or command that Exec or Apply
// does not know, a setting that sysctl does not know.
//
// Files: netns.go (what a namespace is), link.go, address.go, route.go, source.go, neigh.go, input.go (the
// picture above), sockets.go, icmp.go, conntrack.go, nat.go, iptables.go and evaluate.go, ipset.go, sysctl.go;
// apply.go, apply_iptables.go, dump.go, check.go (the datapath.Host seam); exec*.go (what people type).
//
// To look inside: Netns.DumpText prints all of it, Netns.SetTracer shows a packet's way step by step.
package host
