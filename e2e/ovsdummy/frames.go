package ovsdummy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"towtank/datapath/openflow"
	simovs "towtank/sim/ovs"
	"towtank/sim/packet"
)

// A frame carries after its end (where padding is, which OVS passes on) the number under which the packet is
// known here: what is not on a wire is taken from there when it comes out.
const (
	trailerMagic = 0x746f7774 // "towt"
	trailerLen   = 12
)

// biggest is the largest IP packet that is put on the wire in full: with a tunnel's headers it is below the
// MTU of the dummy ports. One that says that it is larger is made so long, and comes out as large as it was.
const biggest = 1400

// frame marshals a packet, with its number behind it.
func (s *Switch) frame(p *packet.Packet) ([]byte, error) {
	small := *p
	small.Size = min(p.Size, biggest)
	b, err := packet.Marshal(&small)
	if err != nil {
		return nil, err
	}
	s.nextPkt++
	s.sent[s.nextPkt] = p.Clone()
	b = binary.BigEndian.AppendUint32(b, trailerMagic)
	return binary.BigEndian.AppendUint64(b, s.nextPkt), nil
}

// packet unmarshals a frame that came out.
func (s *Switch) packet(b []byte) (*packet.Packet, error) {
	p, rest, err := packet.Unmarshal(b)
	if err != nil {
		return nil, err
	}
	p.Size = 0
	if p.Inner != nil {
		p.Inner.Size = 0
	}
	if len(rest) < trailerLen || binary.BigEndian.Uint32(rest) != trailerMagic {
		return p, nil // made by OVS itself
	}
	if from := s.sent[binary.BigEndian.Uint64(rest[4:])]; from != nil {
		p.Payload, p.Size, p.MaxFragment, p.Trace = from.Payload, from.Size, from.MaxFragment, from.Trace
		if p.Inner != nil && from.Inner != nil {
			p.Inner.Payload, p.Inner.Size, p.Inner.Trace = from.Inner.Payload, from.Inner.Size, from.Inner.Trace
			p.Inner.Inner = from.Inner.Inner
		}
	}
	return p, nil
}

// handOut waits until OVS is idle, and hands out the frames of all ports and packet-ins. OVS writes one frame of
// a port in each round of its main loop: there are no more when none came during some rounds.
func (s *Switch) handOut() {
	for more, none := true, true; more; {
		s.idle()
		more = false
		for _, name := range slices.Sorted(maps.Keys(s.ports)) {
			p := s.ports[name]
			if p == nil {
				continue
			}
			list, err := p.frames()
			s.fault("port "+name, err)
			for _, b := range list {
				more = true
				if name == physical {
					err = s.leftByTunnel(b)
				} else {
					err = s.left(p, b)
				}
				s.fault("port "+name, err)
			}
		}
		if more {
			none = false
		} else if none { // before it is called lost, it gets a little more time
			none, more = false, true
			time.Sleep(time.Millisecond) // OVS runs in another process, which does not say that it has nothing more
		}
	}
	s.wait("barrier", func(done func()) {
		s.of.Barrier(func(err error) {
			s.fault("barrier", err)
			done()
		})
	})
	for {
		select {
		case in := <-s.in:
			s.fault("packet-in", s.packetIn(in))
			continue
		default:
		}
		break
	}
	clear(s.sent)
}

func (s *Switch) left(p *port, b []byte) error {
	out, err := s.packet(b)
	if err != nil {
		return err
	}
	s.step("out_port "+openflow.PortName(p.number)+" "+p.name, out.String(), false)
	if s.cfg.Output != nil {
		s.cfg.Output(p.number, out)
	}
	return nil
}

func (s *Switch) packetIn(in *openflow.PacketIn) error {
	p, err := s.packet(in.Packet)
	if err != nil {
		return err
	}
	port := uint32(in.Get(openflow.InPort).Lo)
	s.step("controller", p.String(), false)
	if s.cfg.PacketIn != nil {
		x := simovs.PacketIn{
			Packet: p, InPort: port, Userdata: in.Userdata, Cookie: in.Cookie, TableID: in.Table,
			CTState: uint32(in.Get(openflow.CTState).Lo), CTMark: uint32(in.Get(openflow.CTMark).Lo), CTZone: uint16(in.Get(openflow.CTZone).Lo),
		}
		for i := range 16 {
			x.Regs[i] = uint32(in.Get(openflow.Reg(i)).Lo)
		}
		s.cfg.PacketIn(x)
	}
	return nil
}

// UDP ports of tunnels, and the lengths of their headers.
const (
	portGeneve = 6081
	portVXLAN  = 4789
	udpHeader  = 8
	tunHeader  = 8
)

// leftByTunnel takes an encapsulated frame off the underlay.
func (s *Switch) leftByTunnel(b []byte) error {
	outer, _, err := packet.Unmarshal(b)
	if err != nil {
		return err
	}
	if outer.Proto != packet.ProtoUDP || outer.DstPort != portGeneve && outer.DstPort != portVXLAN {
		return nil // ARP and neighbour discovery of the underlay
	}
	at := 14 + 20 + udpHeader
	if outer.EthType == packet.EthIPv6 {
		at += 20
	}
	if len(b) < at+tunHeader {
		return errors.New("a tunnel packet without a tunnel header")
	}
	h := b[at:]
	id := uint64(h[4])<<16 | uint64(h[5])<<8 | uint64(h[6])
	inner := h[tunHeader:]
	if outer.DstPort == portGeneve {
		options := int(h[0]&0x3f) * 4
		if len(inner) < options {
			return errors.New("a geneve packet ends in its options")
		}
		inner = inner[options:]
	}
	p, err := s.packet(inner)
	if err != nil {
		return err
	}
	for _, st := range s.model.Ports() {
		if st.IsTunnel() && st.OFPort != 0 {
			s.step("out_port "+openflow.PortName(st.OFPort)+" "+st.Name, p.String()+" to "+outer.Dst.String(), false)
			if s.cfg.Tunnel != nil {
				s.cfg.Tunnel(st, p, outer.Dst, netip.Addr{}, id) // no flow sets tun_src: the node's address
			}
			return nil
		}
	}
	return errors.New("a tunnel packet left and there is no tunnel port")
}

// encapsulate puts a frame into a tunnel packet from src to dst.
func encapsulate(kind string, inner []byte, src, dst netip.Addr, id uint64) ([]byte, error) {
	outer := packet.Packet{
		EthSrc: neighbourMAC, EthDst: underlayMAC, Proto: packet.ProtoUDP, TTL: 64, SrcPort: 49152, DstPort: portGeneve,
	}
	head := []byte{0, 0, 0x65, 0x58, byte(id >> 16), byte(id >> 8), byte(id), 0}
	switch kind {
	case "geneve":
	case "vxlan":
		outer.DstPort = portVXLAN
		head = []byte{8, 0, 0, 0, byte(id >> 16), byte(id >> 8), byte(id), 0}
	default:
		return nil, fmt.Errorf("tunnels of type %s are not supported", kind)
	}
	outer.SetIPs(src, dst)
	return packet.MarshalUDP(&outer, append(head, inner...))
}
