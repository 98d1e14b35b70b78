// Package datapath holds what the agent wants on a node as plain data: objects with one canonical
// text, the Store that knows which of them are desired and which are there, the staged Change that
// takes the node from one to the other, and the two seams (Switch and Host) that a Change crosses.
package datapath

import "strings"

// Kind names a sort of object. Its order of creation is its Rank; deletion goes the other way.
type Kind string

// The kinds of objects. Flow, group and meter texts are in ovs-ofctl syntax, host texts in the
// syntax of ip, ipset, iptables-save and sysctl.
const (
	KindPort       Kind = "port"     // a row of OVSDB's Port and Interface tables
	KindMeter      Kind = "meter"    // OpenFlow meter
	KindGroup      Kind = "group"    // OpenFlow group
	KindFlow       Kind = "flow"     // OpenFlow flow
	KindSysctl     Kind = "sysctl"   // net.* setting
	KindLink       Kind = "link"     // network device
	KindAddress    Kind = "address"  // IP address on a link
	KindNeighbour  Kind = "neigh"    // permanent neighbour entry
	KindRoute      Kind = "route"    // route
	KindRule       Kind = "rule"     // policy routing rule
	KindIPSet      Kind = "ipset"    // ipset
	KindIPSetEntry Kind = "setentry" // member of an ipset
	KindIPTables   Kind = "iptables" // one iptables or ip6tables rule
	KindHealth     Kind = "health"   // health check listener of a Service
)

// Key identifies an object on its node. Two objects with one key and different texts are two
// versions of the same object.
type Key struct {
	Kind Kind
	Name string
}

// String returns kind and name, as logs and errors show a key.
func (k Key) String() string { return string(k.Kind) + " " + k.Name }

// Compare orders keys by kind and name; it returns -1, 0 or 1.
func (k Key) Compare(o Key) int {
	if c := strings.Compare(string(k.Kind), string(o.Kind)); c != 0 {
		return c
	}
	return strings.Compare(k.Name, o.Name)
}

// Object is a comparable value with one canonical text. The text is what the backend prints after
// the object was written; it parses back to an equal object. Objects are immutable.
type Object interface {
	// Kind is the kind of its Key.
	Kind() Kind
	// Key identifies the object.
	Key() Key
	// String returns the whole canonical text. Two objects are equal if their texts are.
	String() string
}

// Equal reports whether two objects have the same key and text; nil equals only nil.
func Equal(a, b Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Key() == b.Key() && a.String() == b.String()
}
