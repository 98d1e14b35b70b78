// Package peer is both ends of the traffic on real nodes: a process in a network namespace that serves and
// dials as it is told, one request a line on its standard input, one answer a line on its standard output.
//
//	scenario ──▶ Client ──stdin/stdout──▶ Serve: servers ◀── packets ──▶ clients of another peer
//
// What is sent can be recognised on the wire: a question begins with QuestionMark and its token, the answer
// to it with AnswerMark and the same token, in the clear within a tunnel too.
package peer

import (
	"net/netip"
	"time"
)

// Marks of what peers send.
const (
	QuestionMark = "towtank?"
	AnswerMark   = "towtank!"
)

// AnswerWithin is how long an answer is waited for.
const AnswerWithin = time.Second

// Verdict is what a connection or packet experienced.
type Verdict string

// The verdicts.
const (
	OK     Verdict = "ok"
	Drop   Verdict = "drop"   // silence
	Reject Verdict = "reject" // a reset, or a destination that says it is unreachable
)

// Port is a port that is served. Who asks is told the Name.
type Port struct {
	Proto string `json:"proto"` // tcp or udp
	Port  uint16 `json:"port"`
	Name  string `json:"name"`
}

// Flow is one connection, or one datagram and its answer.
type Flow struct {
	Proto string     `json:"proto"` // tcp, udp or icmp
	To    netip.Addr `json:"to"`
	Port  uint16     `json:"port"`
	SPort uint16     `json:"sport"` // the identifier of an echo request; 0: any
	Size  int        `json:"size"`  // bytes of the IP packet; 0: as small as possible
	DF    bool       `json:"df"`
	HTTP  bool       `json:"http"`  // asks for /healthz
	Token string     `json:"token"` // of letters and digits
}

// Result is what a flow experienced.
type Result struct {
	Verdict Verdict    `json:"verdict"`
	Name    string     `json:"name"` // of who answered; "": it did not say
	Port    uint16     `json:"port"` // that it serves
	Source  netip.Addr `json:"source"`
	To      netip.Addr `json:"to"`
	HTTP    int        `json:"http"`
	Reset   bool       `json:"reset"` // an open connection was reset
	Note    string     `json:"note"`
}

// seen is what a server answers.
type seen struct {
	Name   string     `json:"name"`
	Port   uint16     `json:"port"`
	Source netip.Addr `json:"source"`
	To     netip.Addr `json:"to"`
}

// The operations of requests.
const (
	opServe    = "serve"
	opStop     = "stop" // serving a port
	opDial     = "dial"
	opOpen     = "open"
	opSend     = "send"
	opClose    = "close"
	opTransmit = "transmit"
	opTransfer = "transfer"
)

// request is one line to a peer.
type request struct {
	ID    uint64 `json:"id"`
	Op    string `json:"op"`
	Port  *Port  `json:"port,omitempty"`
	Flow  *Flow  `json:"flow,omitempty"`
	Conn  uint64 `json:"conn,omitempty"`  // that open made
	Frame []byte `json:"frame,omitempty"` // of transmit, with its Ethernet header
	Link  string `json:"link,omitempty"`
	Bytes int64  `json:"bytes,omitempty"` // of transfer
}

// reply is one line from a peer.
type reply struct {
	ID     uint64 `json:"id"`
	Err    string `json:"err,omitempty"`
	Result Result `json:"result"`
	Conn   uint64 `json:"conn,omitempty"`
	Sum    string `json:"sum,omitempty"` // SHA-256 of what arrived
}
