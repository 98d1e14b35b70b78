package ovs

import (
	"towtank/sim/packet"
)

// connState is the state of a connection. TCP has a state for each end, as in OVS
// (lib/conntrack-tcp.c); other protocols only know whether there was an answer.
type connState struct {
	peer  [2]tcpState // TCP: the end that began, the other end
	other otherState
}

type tcpState uint8

const (
	tcpClosed tcpState = iota
	tcpListen
	tcpSynSent
	tcpSynRecv
	tcpEstablished
	tcpCloseWait
	tcpFinWait1
	tcpClosing
	tcpLastAck
	tcpFinWait2
	tcpTimeWait
)

var tcpStateNames = [...]string{
	"CLOSED", "LISTEN", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "CLOSE_WAIT", "FIN_WAIT_1", "CLOSING", "LAST_ACK", "FIN_WAIT_2", "TIME_WAIT",
}

type otherState uint8

const (
	otherFirst otherState = iota
	otherMultiple
	otherBothWays
)

// Default timeouts of OVS's userspace connection tracking, in seconds (lib/conntrack-private.h,
// CT_TIMEOUTS).
const (
	timeoutTCPFirst       = 30
	timeoutTCPOpening     = 30
	timeoutTCPEstablished = 24 * 3600
	timeoutTCPClosing     = 15 * 60
	timeoutTCPFinWait     = 45
	timeoutTCPClosed      = 30
	timeoutOtherFirst     = 60
	timeoutOtherMultiple  = 60
	timeoutOtherBothWays  = 30
	timeoutICMPFirst      = 60
	timeoutICMPReply      = 30
)

type updateResult uint8

const (
	updateValid updateResult = iota
	updateStillNew
	updateNew // the packet begins another connection of the same tuple
	updateInvalid
)

// Types of ICMP queries, the answer to each is the next number.
const (
	icmpTimestamp   = 13
	icmpInformation = 15
	icmpAddressMask = 17
)

// invalidTCPFlags reports combinations that no TCP sends.
func invalidTCPFlags(f uint8) bool {
	switch {
	case f&packet.SYN != 0 && f&(packet.RST|packet.FIN) != 0:
		return true
	case f&packet.SYN == 0 && f&(packet.ACK|packet.RST) == 0:
		return true
	}
	return f&packet.ACK == 0 && f&(packet.FIN|packet.PSH) != 0
}

// validNew reports whether a packet may begin a connection.
func validNew(p *packet.Packet, t tuple) bool {
	switch t.proto {
	case packet.ProtoTCP:
		return !invalidTCPFlags(p.TCPFlags) && p.TCPFlags&(packet.SYN|packet.ACK) != packet.SYN|packet.ACK
	case packet.ProtoICMP:
		switch uint8(t.icmp >> 8) {
		case packet.ICMPEchoRequest, icmpTimestamp, icmpInformation, icmpAddressMask:
			return true
		}
		return false
	case packet.ProtoICMPv6:
		return uint8(t.icmp>>8) == packet.ICMPv6EchoRequest
	}
	return true
}

func newConnState(proto uint8) connState {
	var s connState
	if proto == packet.ProtoTCP {
		s.peer[0] = tcpSynSent
	}
	return s
}

// update moves the state on for a packet.
func (s *connState) update(p *packet.Packet, proto uint8, reply bool) updateResult {
	switch {
	case proto == packet.ProtoTCP:
		return s.updateTCP(p.TCPFlags, reply)
	case reply:
		s.other = otherBothWays
	case s.other != otherBothWays:
		s.other = otherMultiple
		return updateStillNew
	}
	return updateValid
}

func (s *connState) updateTCP(f uint8, reply bool) updateResult {
	if invalidTCPFlags(f) {
		return updateInvalid
	}
	src, dst := &s.peer[0], &s.peer[1]
	if reply {
		src, dst = dst, src
	}
	if f&(packet.SYN|packet.ACK) == packet.SYN {
		switch {
		case *src >= tcpFinWait2 && *dst >= tcpFinWait2:
			return updateNew
		case *src <= tcpSynSent: // again, or at the same time as the other end
			*src = tcpSynSent
			return updateStillNew
		}
	}
	if *src < tcpSynSent {
		*src = tcpSynSent
	}
	if f&packet.FIN != 0 && *src < tcpClosing {
		*src = tcpClosing
	}
	if f&packet.ACK != 0 {
		switch *dst {
		case tcpSynSent:
			*dst = tcpEstablished
		case tcpClosing:
			*dst = tcpFinWait2
		}
	}
	if f&packet.RST != 0 {
		*src, *dst = tcpTimeWait, tcpTimeWait
	}
	return updateValid
}

// timeout returns how long the connection lives without a packet, in nanoseconds.
func (s *connState) timeout(proto uint8) int64 {
	a, b := s.peer[0], s.peer[1]
	seconds := 0
	switch proto {
	case packet.ProtoTCP:
		switch {
		case b == tcpClosed && a == tcpSynSent:
			seconds = timeoutTCPFirst
		case a >= tcpFinWait2 && b >= tcpFinWait2:
			seconds = timeoutTCPClosed
		case a >= tcpClosing && b >= tcpClosing:
			seconds = timeoutTCPFinWait
		case a < tcpEstablished || b < tcpEstablished:
			seconds = timeoutTCPOpening
		case a >= tcpClosing || b >= tcpClosing:
			seconds = timeoutTCPClosing
		default:
			seconds = timeoutTCPEstablished
		}
	case packet.ProtoICMP, packet.ProtoICMPv6:
		seconds = timeoutICMPFirst
		if s.other == otherBothWays {
			seconds = timeoutICMPReply
		}
	default:
		seconds = [...]int{timeoutOtherFirst, timeoutOtherMultiple, timeoutOtherBothWays}[s.other]
	}
	return int64(seconds) * second
}

// text is the state as dump-conntrack shows it.
func (s *connState) text() string { return tcpStateNames[max(s.peer[0], s.peer[1])] }
