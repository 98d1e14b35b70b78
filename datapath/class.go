package datapath

// Class is what a write to a node is counted, and in the simulator refused, as: writes of one class are made
// together, by one bundle, one transaction or one restore.
type Class string

// The classes of writes to the two seams of a node.
const (
	ClassSwitch   Class = "switch" // a bundle of groups and flows
	ClassPorts    Class = "ports"
	ClassMeters   Class = "meters"
	ClassFlush    Class = "flush" // of conntrack
	ClassResolve  Class = "resolve"
	ClassLink     Class = "link"
	ClassAddress  Class = "address"
	ClassRoute    Class = "route" // routes, rules, neighbours
	ClassIPSet    Class = "ipset"
	ClassIPTables Class = "iptables"
	ClassHealth   Class = "health"
	ClassSysctl   Class = "sysctl"
	ClassAnnounce Class = "announce"
	// ClassDumpConntrack reads and writes nothing: only a fault of that name hits it, "any" does not.
	ClassDumpConntrack Class = "dump-conntrack"
)

// ClassOf returns the class of writes of objects of a kind.
func ClassOf(k Kind) Class {
	switch k {
	case KindLink:
		return ClassLink
	case KindAddress:
		return ClassAddress
	case KindRoute, KindRule, KindNeighbour:
		return ClassRoute
	case KindIPSet, KindIPSetEntry:
		return ClassIPSet
	case KindIPTables:
		return ClassIPTables
	case KindHealth:
		return ClassHealth
	case KindSysctl:
		return ClassSysctl
	case KindPort:
		return ClassPorts
	case KindMeter:
		return ClassMeters
	}
	return ClassSwitch
}

// Part splits ops where their class changes for the first time: part is one write.
func Part(ops []Op) (part, rest []Op) {
	if len(ops) == 0 {
		return nil, nil
	}
	class, n := ClassOf(ops[0].Kind()), 1
	for n < len(ops) && ClassOf(ops[n].Kind()) == class {
		n++
	}
	return ops[:n], ops[n:]
}
