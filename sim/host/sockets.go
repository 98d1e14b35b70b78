package host

import (
	"fmt"
	"net/netip"
	"slices"

	"towtank/sim/packet"
)

// Handler answers a packet that a listener got: nil for no answer, or a packet of which the zero
// fields (addresses, ports, protocol, flags, trace) are filled in as an answer to in.
type Handler func(in *packet.Packet) *packet.Packet

type listenKey struct {
	proto uint8
	port  uint16
	addr  netip.Addr // invalid: all
}

type session struct {
	local, remote netip.AddrPort
}

// sockets are the namespace's listeners and client sockets.
type sockets struct {
	listeners map[listenKey]Handler
	clients   map[listenKey]func(*packet.Packet)
	sessions  map[session]bool // established TCP connections of listeners
}

func newSockets() sockets {
	return sockets{map[listenKey]Handler{}, map[listenKey]func(*packet.Packet){}, map[session]bool{}}
}

// reboot ends connections and clients; listeners start again with their processes.
func (s *sockets) reboot() {
	s.clients = map[listenKey]func(*packet.Packet){}
	s.sessions = map[session]bool{}
}

// Echo is the Handler that answers with the payload it got.
func Echo(in *packet.Packet) *packet.Packet { return &packet.Packet{Payload: in.Payload} }

// Listen serves a port on all addresses. For TCP the handler is called for a SYN, whose answer is a
// SYN+ACK, and for packets with PSH or a payload of an established connection, whose answer is an
// ACK; a nil answer is silence. A second Listen on the port replaces the first; a nil handler closes it.
func (n *Netns) Listen(proto uint8, port uint16, fn Handler) {
	n.ListenOn(netip.Addr{}, proto, port, fn)
}

// ListenOn is Listen on one address.
func (n *Netns) ListenOn(addr netip.Addr, proto uint8, port uint16, fn Handler) {
	k := listenKey{proto, port, addr}
	if fn == nil {
		delete(n.socks.listeners, k)
		return
	}
	n.socks.listeners[k] = fn
}

// Bind gives the answers to a local port (for ICMP and ICMPv6: the identifier of an echo request) to
// fn: SYN+ACK, RST, data, datagrams, echo replies, and ICMP errors about packets from it. A SYN+ACK is
// acknowledged by itself after that. The result closes the socket.
func (n *Netns) Bind(proto uint8, port uint16, fn func(in *packet.Packet)) (closeSocket func(), err error) {
	k := listenKey{proto: proto, port: port}
	if n.socks.clients[k] != nil {
		return nil, fmt.Errorf("bind %s port %d in %s: Address already in use", packet.ProtoName(proto), port, n.Name())
	}
	n.socks.clients[k] = fn
	return func() { delete(n.socks.clients, k) }, nil
}

func (s *sockets) listener(proto uint8, port uint16, addr netip.Addr) Handler {
	if h := s.listeners[listenKey{proto, port, addr}]; h != nil {
		return h
	}
	return s.listeners[listenKey{proto: proto, port: port}]
}

// socket gives a packet to whoever waits for it, or refuses it.
func (n *Netns) socket(c *pkt) {
	p := c.p
	c.delivered = true
	if n.cfg.Delivered != nil {
		n.cfg.Delivered(p)
	}
	switch p.Proto {
	case packet.ProtoICMP, packet.ProtoICMPv6:
		n.icmpSocket(c)
	case packet.ProtoTCP:
		n.tcpSocket(c)
	case packet.ProtoUDP, packet.ProtoSCTP:
		if fn := n.socks.clients[listenKey{proto: p.Proto, port: p.DstPort}]; fn != nil {
			fn(p)
			return
		}
		h := n.socks.listener(p.Proto, p.DstPort, p.Dst)
		if h == nil {
			// SCTP would answer ABORT; the model has one answer for both.
			n.drop("local", fmt.Sprintf("nobody listens on %s port %d", packet.ProtoName(p.Proto), p.DstPort))
			if c.fi == 0 {
				n.icmpError(c, packet.ICMPUnreachable, 3)
			} else {
				n.icmpError(c, packet.ICMPv6Unreachable, 4)
			}
			return
		}
		n.reply(c, h(p), 0)
	default:
		n.drop("local", "nobody takes protocol "+packet.ProtoName(p.Proto))
		if c.fi == 0 {
			n.icmpError(c, packet.ICMPUnreachable, 2)
		}
	}
}

func (n *Netns) icmpSocket(c *pkt) {
	p := c.p
	switch {
	case p.IsICMPError():
		if p.Inner == nil {
			return
		}
		port := p.Inner.SrcPort
		if p.Inner.Proto == packet.ProtoICMP || p.Inner.Proto == packet.ProtoICMPv6 {
			port = p.Inner.ICMPID
		}
		if fn := n.socks.clients[listenKey{proto: p.Inner.Proto, port: port}]; fn != nil {
			fn(p)
		}
	case p.ICMPType == packet.ICMPEchoRequest && c.fi == 0, p.ICMPType == packet.ICMPv6EchoRequest && c.fi == 1:
		if !n.isLocal(p.Dst) {
			return // to a broadcast address: not answered (icmp_echo_ignore_broadcasts)
		}
		a := &packet.Packet{
			Src: p.Dst, Dst: p.Src, Proto: p.Proto, ICMPID: p.ICMPID, ICMPSeq: p.ICMPSeq, Payload: p.Payload, Size: p.Size,
			Trace: p.Trace, ICMPType: packet.ICMPEchoReply,
		}
		if c.fi == 1 {
			a.ICMPType = packet.ICMPv6EchoReply
		}
		n.respond(a)
	case p.ICMPType == packet.ICMPEchoReply && c.fi == 0, p.ICMPType == packet.ICMPv6EchoReply && c.fi == 1:
		if fn := n.socks.clients[listenKey{proto: p.Proto, port: p.ICMPID}]; fn != nil {
			fn(p)
		}
	}
}

func (n *Netns) tcpSocket(c *pkt) {
	p := c.p
	s := session{netip.AddrPortFrom(p.Dst, p.DstPort), netip.AddrPortFrom(p.Src, p.SrcPort)}
	if fn := n.socks.clients[listenKey{proto: p.Proto, port: p.DstPort}]; fn != nil && p.TCPFlags&(packet.SYN|packet.ACK) != packet.SYN {
		fn(p)
		if p.TCPFlags&packet.SYN != 0 {
			ack := &packet.Packet{
				Src: p.Dst, Dst: p.Src, Proto: p.Proto, SrcPort: p.DstPort, DstPort: p.SrcPort, TCPFlags: packet.ACK,
				Seq: p.Ack, Ack: p.Seq + 1, Trace: p.Trace,
			}
			n.respond(ack)
		}
		return
	}
	h := n.socks.listener(p.Proto, p.DstPort, p.Dst)
	switch {
	case p.TCPFlags&packet.RST != 0:
		delete(n.socks.sessions, s)
	case p.TCPFlags&(packet.SYN|packet.ACK) == packet.SYN && h != nil:
		a := h(p)
		if a != nil {
			if n.peek != nil && !n.socks.sessions[s] {
				n.peek.sessions = append(n.peek.sessions, s)
			}
			n.socks.sessions[s] = true
			n.reply(c, a, packet.SYN|packet.ACK)
		}
	case h != nil && n.socks.sessions[s]:
		if p.TCPFlags&packet.FIN != 0 {
			delete(n.socks.sessions, s)
			n.reply(c, &packet.Packet{}, packet.FIN|packet.ACK)
		} else if p.TCPFlags&packet.PSH != 0 || p.Payload != "" {
			n.reply(c, h(p), packet.ACK)
		}
	default:
		if n.tracer != nil {
			n.drop("local", fmt.Sprintf("tcp port %d: refused with RST", p.DstPort))
		}
		n.respond(reset(p))
	}
}

// reply completes a handler's answer and sends it.
func (n *Netns) reply(c *pkt, a *packet.Packet, flags uint8) {
	if a == nil {
		return
	}
	in := c.p
	a = a.Clone()
	if !a.Src.IsValid() {
		a.Src = in.Dst
	}
	if !a.Dst.IsValid() {
		a.Dst = in.Src
	}
	if a.Proto == 0 {
		a.Proto = in.Proto
	}
	if a.SrcPort == 0 {
		a.SrcPort = in.DstPort
	}
	if a.DstPort == 0 {
		a.DstPort = in.SrcPort
	}
	if a.TCPFlags == 0 && a.Proto == packet.ProtoTCP {
		a.TCPFlags = flags
		a.Seq, a.Ack = in.Ack, in.Seq+1
	}
	if a.Trace == 0 {
		a.Trace = in.Trace
	}
	a.DF = a.DF || in.DF
	n.respond(a)
}

// Listens reports whether something listens on an address and port.
func (n *Netns) Listens(at netip.AddrPort, proto uint8) bool {
	return n.socks.listener(proto, at.Port(), at.Addr()) != nil
}

// Listening returns the open ports as "tcp 8080", sorted, for dumps.
func (n *Netns) Listening() []string {
	var out []string
	//determinism:ignore the text depends on the listener alone, and the list is sorted
	for k := range n.socks.listeners {
		s := fmt.Sprintf("%s %d", packet.ProtoName(k.proto), k.port)
		if k.addr.IsValid() {
			s += " on " + k.addr.String()
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}
