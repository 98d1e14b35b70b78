package host

import "net/netip"

// RuleSpec is a parsed iptables rule: what comes after "-A CHAIN". Matches are evaluated in order
// and all must hold.
type RuleSpec struct {
	Family   Family
	Src, Dst NetMatch
	In, Out  LinkMatch
	Proto    ProtoMatch
	Matches  []Match
	Target   Target // nil: the rule counts and goes on
}

// NetMatch is -s or -d; an invalid Prefix matches everything.
type NetMatch struct {
	Prefix netip.Prefix
	Not    bool
}

// LinkMatch is -i or -o; "" matches every link, a trailing + any name that begins so.
type LinkMatch struct {
	Name string
	Not  bool
}

// ProtoMatch is -p; Num 0 matches every protocol.
type ProtoMatch struct {
	Num uint8
	Not bool
}

// Match is one of the Match… types below (of -m).
type Match interface{ args() []string }

// PortRange is FIRST:LAST; the zero value is no condition.
type PortRange struct {
	First, Last uint16
	Set, Not    bool
}

// MatchPorts is -m tcp, udp or sctp.
type MatchPorts struct {
	Proto    uint8
	Src, Dst PortRange
	// FlagsMask and Flags are --tcp-flags (bits FIN 1, SYN 2, RST 4, PSH 8, ACK 16); mask 0: none.
	FlagsMask, Flags uint8
	FlagsNot         bool
}

// MatchMultiport is -m multiport; Side is sports, dports or ports.
type MatchMultiport struct {
	Side  string
	Ports []PortRange
	Not   bool
}

// MatchICMP is -m icmp or icmp6. Code -1 is any code.
type MatchICMP struct {
	Type uint8
	Code int
	Not  bool
}

// MatchSet is -m set --match-set; Dirs are src or dst, one for each part of the element.
type MatchSet struct {
	Name string
	Dirs []string
	Not  bool
}

// MatchMark is -m mark or, with Conn, -m connmark.
type MatchMark struct {
	Value, Mask uint32
	Not, Conn   bool
}

// MatchMAC is -m mac --mac-source.
type MatchMAC struct {
	MAC MAC
	Not bool
}

// CTState is a set of conntrack states.
type CTState uint8

// The states of -m conntrack --ctstate, in the order in which iptables-save prints them.
const (
	CTInvalid CTState = 1 << iota
	CTNew
	CTRelated
	CTEstablished
	CTUntracked
	CTSNAT
	CTDNAT
)

var ctStateNames = []string{"INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED", "SNAT", "DNAT"}

// MatchConntrack is -m conntrack. States 0, Dir "" and unset parts are no condition. Legacy is set
// for -m state --state, which means the same.
type MatchConntrack struct {
	States    CTState
	StatesNot bool
	Proto     ProtoMatch
	OrigSrc   NetMatch
	OrigDst   NetMatch
	ReplySrc  NetMatch
	ReplyDst  NetMatch
	OrigSPort PortRange
	OrigDPort PortRange
	Dir       string // ORIGINAL or REPLY
	Legacy    bool
}

// MatchAddrType is -m addrtype. Types are LOCAL, UNICAST, BROADCAST, MULTICAST; "" is no condition.
type MatchAddrType struct {
	Src, Dst          string
	SrcNot, DstNot    bool
	LimitIn, LimitOut bool
}

// MatchComment is -m comment: always true.
type MatchComment struct{ Text string }

// Target is one of the Target… types below (of -j and -g).
type Target interface{ targetArgs() []string }

// TargetVerdict is ACCEPT, DROP or RETURN.
type TargetVerdict struct{ Name string }

// TargetJump goes on in a chain: -j CHAIN comes back at its end, -g CHAIN (Goto) does not.
type TargetJump struct {
	Chain string
	Goto  bool
}

// TargetReject is REJECT --reject-with With.
type TargetReject struct{ With string }

// TargetMark is MARK --set-xmark: mark = (mark &^ Mask) ^ Value.
type TargetMark struct{ Value, Mask uint32 }

// TargetConnmark is CONNMARK. Op is set (ctmark = (ctmark &^ CTMask) ^ Value), save (ctmark =
// (ctmark &^ CTMask) ^ (mark & NFMask)) or restore (mark = (mark &^ NFMask) ^ (ctmark & CTMask)).
type TargetConnmark struct {
	Op             string
	Value          uint32
	NFMask, CTMask uint32
}

// TargetNAT is SNAT, DNAT or MASQUERADE.
type TargetNAT struct {
	Kind        string
	Addr        netip.Addr // none for MASQUERADE, and for a bare port
	Ports       PortRange
	Random      bool
	RandomFully bool
	Persistent  bool
}

// TargetNotrack is CT --notrack.
type TargetNotrack struct{}

// TargetLog is LOG or TRACE: no effect here. Args are its options as given.
type TargetLog struct {
	Name string
	Args []string
}

// Comment returns the text of the rule's first comment, "" if it has none.
func (r *RuleSpec) Comment() string {
	for _, m := range r.Matches {
		if c, ok := m.(MatchComment); ok {
			return c.Text
		}
	}
	return ""
}

// JumpsTo returns the chain that the rule jumps or goes to, "" if it does not.
func (r *RuleSpec) JumpsTo() string {
	if j, ok := r.Target.(TargetJump); ok {
		return j.Chain
	}
	return ""
}
