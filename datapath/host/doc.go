// Package host holds the objects of the node's kernel network: links, addresses, routes, policy
// rules, neighbours, sysctls, ipsets, iptables rules and health listeners.
//
// Every object is a comparable plain struct with one canonical text, in the syntax of ip, ipset,
// iptables-save or sysctl, that parses back to an equal object:
//
//	object        text
//	Link          dev web-1a2b3c type veth mtu 1450 up alias towtank:c1/eth0 guard
//	Address       10.10.1.1/24 dev gw0 proto 116
//	Neighbour     169.254.0.253 dev gw0 lladdr aa:bb:cc:dd:ee:ff nud permanent proto 116
//	Route         10.10.2.0/24 via 10.10.2.1 dev gw0 proto 116 onlink
//	Rule          100: from all fwmark 0x5/0xff lookup 101 proto 116
//	Sysctl        net.ipv4.ip_forward = 1
//	IPSet         create TOWTANK-NODEPORT hash:ip,port family inet maxelem 65536
//	IPSetEntry    add TOWTANK-NODEPORT 172.18.0.11,tcp:30080
//	IPTables      iptables -t nat -A TOWTANK-POSTROUTING -m mark --mark 0x5/0xff
//	                -m comment --comment towtank-100 -j SNAT --to-source 172.18.0.50   (one line)
//	              iptables -t nat -N TOWTANK-POSTROUTING
//	Health        health 30500 service default/web local 2
//
// The constructors (NewLink, NewAddress, …) normalise as the kernel and its tools do (host bits of
// prefixes, default scopes and metrics, mark arithmetic) and refuse what has no canonical form. Parse
// reads any of the texts. How the node remembers that an object is ours:
//
//	Address, Neighbour, Route, Rule   protocol number ProtoTowtank
//	Link                              alias towtank:OWNER
//	IPSet, IPSetEntry                 name of the set: TOWTANK-…
//	IPTables                          name of the chain: TOWTANK-…; a comment towtank-PRIORITY
//	Sysctl, Health                    the backend remembers what it set, until the next boot
//
// A parsed iptables rule is a RuleSpec; the simulator evaluates the same value that the constructor
// normalised.
package host
