package packet

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"

	"towtank/internal/checksum"
)

var be = binary.BigEndian

const (
	ethHeader  = 14
	vlanHeader = 4
	arpLength  = 28
	ip4Header  = 20
	ip6Header  = 40
	fragHeader = 8
	laterFrag  = 185 // offset of a fragment that is not the first, in units of 8 bytes: 1480 bytes
	moreFrags  = 0x2000
	dontFrag   = 0x4000
)

// Marshal returns the frame as it is on a wire, with right lengths and checksums. Payload, Mark and Trace
// are not on it: the receiver has them from elsewhere. A packet with Size set is filled up to it with zeros.
// What Inner carries in a tunnel packet is not marshalled; that of an ICMP error is.
func Marshal(p *Packet) ([]byte, error) {
	b := make([]byte, 0, 128)
	b = append(append(b, p.EthDst[:]...), p.EthSrc[:]...)
	if p.VLAN&0x1000 != 0 {
		b = be.AppendUint16(be.AppendUint16(b, 0x8100), uint16(p.VLANPriority)<<13|p.VLAN&0xfff)
	}
	b = be.AppendUint16(b, p.EthType)
	switch p.EthType {
	case EthARP:
		return appendARP(b, p)
	case EthIPv4, EthIPv6:
		return appendIP(b, p)
	}
	return b, nil
}

func appendARP(b []byte, p *Packet) ([]byte, error) {
	if !p.ARPSPA.Is4() || !p.ARPTPA.Is4() {
		return nil, fmt.Errorf("packet %s: the addresses of ARP are IPv4", p)
	}
	b = be.AppendUint16(append(b, 0, 1, 8, 0, 6, 4), p.ARPOp)
	b = append(append(b, p.ARPSHA[:]...), p.ARPSPA.AsSlice()...)
	return append(append(b, p.ARPTHA[:]...), p.ARPTPA.AsSlice()...), nil
}

func appendIP(b []byte, p *Packet) ([]byte, error) {
	v6 := p.EthType == EthIPv6
	if !p.Src.IsValid() || !p.Dst.IsValid() || p.Src.Is6() != v6 || p.Dst.Is6() != v6 {
		return nil, fmt.Errorf("packet %s: the addresses are not of the family of Ethernet type %#04x", p, p.EthType)
	}
	start := len(b)
	head := ip4Header
	if v6 {
		if head = ip6Header; p.Frag != 0 {
			head += fragHeader
		}
	}
	b = append(b, make([]byte, head)...)
	b, err := appendL4(b, p)
	if err != nil {
		return nil, err
	}
	if n := start + p.Size - len(b); p.Size > 0 && n > 0 {
		b = append(b, make([]byte, n)...)
	}
	if p.Frag != 3 {
		if err := checksumL4(b[start+head:], p); err != nil {
			return nil, err
		}
	}
	h := b[start:]
	if v6 {
		putIPv6(h, p)
	} else {
		putIPv4(h, p)
	}
	return b, nil
}

func putIPv4(h []byte, p *Packet) {
	h[0], h[1] = 0x45, p.TOS
	be.PutUint16(h[2:], uint16(len(h)))
	var frag uint16
	switch {
	case p.Frag == 1:
		frag = moreFrags
	case p.Frag == 3:
		frag = laterFrag
	case p.DF:
		frag = dontFrag
	}
	be.PutUint16(h[6:], frag)
	h[8], h[9] = p.TTL, p.Proto
	copy(h[12:], p.Src.AsSlice())
	copy(h[16:], p.Dst.AsSlice())
	be.PutUint16(h[10:], checksum.Sum(0).Add(h[:ip4Header]).Fold())
}

func putIPv6(h []byte, p *Packet) {
	h[0], h[1] = 0x60|p.TOS>>4, p.TOS<<4
	be.PutUint16(h[4:], uint16(len(h)-ip6Header))
	h[6], h[7] = p.Proto, p.TTL
	copy(h[8:], p.Src.AsSlice())
	copy(h[24:], p.Dst.AsSlice())
	if p.Frag != 0 {
		h[6], h[ip6Header] = 44, p.Proto
		off := uint16(1)
		if p.Frag == 3 {
			off = laterFrag << 3
		}
		be.PutUint16(h[ip6Header+2:], off)
	}
}

func appendL4(b []byte, p *Packet) ([]byte, error) {
	if p.Frag == 3 {
		return append(b, 0, 0, 0, 0, 0, 0, 0, 0), nil
	}
	switch p.Proto {
	case ProtoTCP:
		b = be.AppendUint16(be.AppendUint16(b, p.SrcPort), p.DstPort)
		b = be.AppendUint32(be.AppendUint32(b, p.Seq), p.Ack)
		return append(b, 5<<4, p.TCPFlags, 0xff, 0xff, 0, 0, 0, 0), nil
	case ProtoUDP:
		b = be.AppendUint16(be.AppendUint16(b, p.SrcPort), p.DstPort)
		return append(b, 0, 8, 0, 0), nil
	case ProtoSCTP:
		b = be.AppendUint16(be.AppendUint16(b, p.SrcPort), p.DstPort)
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
		// An INIT chunk: tag, window, streams, first sequence number.
		return append(b, 1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1), nil
	case ProtoICMP, ProtoICMPv6:
		return appendICMP(b, p)
	}
	return b, nil
}

func appendICMP(b []byte, p *Packet) ([]byte, error) {
	b = append(b, p.ICMPType, p.ICMPCode, 0, 0)
	switch {
	case p.IsICMPError() && p.Inner != nil:
		return appendIP(append(b, 0, 0, 0, 0), p.Inner)
	case p.Proto == ProtoICMPv6 && (p.ICMPType == ICMPv6NeighSolicit || p.ICMPType == ICMPv6NeighAdvert):
		if !p.NDTarget.Is6() {
			return nil, fmt.Errorf("packet %s: no target address", p)
		}
		b = append(append(b, 0x60, 0, 0, 0), p.NDTarget.AsSlice()...)
		if p.ICMPType == ICMPv6NeighSolicit && p.NDSLL != (MAC{}) {
			b = append(append(b, 1, 1), p.NDSLL[:]...)
		}
		if p.ICMPType == ICMPv6NeighAdvert && p.NDTLL != (MAC{}) {
			b = append(append(b, 2, 1), p.NDTLL[:]...)
		}
		return b, nil
	}
	return be.AppendUint16(be.AppendUint16(b, p.ICMPID), p.ICMPSeq), nil
}

// checksumL4 sets length and checksum of the part after the IP header.
func checksumL4(l4 []byte, p *Packet) error {
	at := 0
	switch p.Proto {
	case ProtoTCP:
		at = 16
	case ProtoUDP:
		at = 6
		be.PutUint16(l4[4:], uint16(len(l4)))
	case ProtoICMP, ProtoICMPv6:
		at = 2
	case ProtoSCTP:
		binary.LittleEndian.PutUint32(l4[8:], crc32.Checksum(l4, crc32.MakeTable(crc32.Castagnoli)))
		return nil
	default:
		return nil
	}
	var s checksum.Sum
	if p.Proto != ProtoICMP {
		s = checksum.Pseudo(p.Src, p.Dst, p.Proto, len(l4))
	}
	c := s.Add(l4).Fold()
	if c == 0 && p.Proto == ProtoUDP {
		c = 0xffff
	}
	be.PutUint16(l4[at:], c)
	return nil
}

// Unmarshal reads a frame. rest is what stands after its end (padding). Size is the length of an IP packet.
func Unmarshal(b []byte) (p *Packet, rest []byte, err error) {
	if len(b) < ethHeader {
		return nil, nil, fmt.Errorf("a frame of %d bytes has no Ethernet header", len(b))
	}
	p = &Packet{EthDst: MAC(b[:6]), EthSrc: MAC(b[6:12]), EthType: be.Uint16(b[12:])}
	b = b[ethHeader:]
	if p.EthType == 0x8100 {
		if len(b) < vlanHeader {
			return nil, nil, fmt.Errorf("the frame ends in its VLAN tag")
		}
		tci := be.Uint16(b)
		p.VLAN, p.VLANPriority, p.EthType = 0x1000|tci&0xfff, uint8(tci>>13), be.Uint16(b[2:])
		b = b[vlanHeader:]
	}
	switch p.EthType {
	case EthARP:
		if len(b) < arpLength {
			return nil, nil, fmt.Errorf("ARP of %d bytes, want %d", len(b), arpLength)
		}
		p.ARPOp, p.ARPSHA, p.ARPTHA = be.Uint16(b[6:]), MAC(b[8:14]), MAC(b[18:24])
		p.ARPSPA, p.ARPTPA = netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
		return p, b[arpLength:], nil
	case EthIPv4, EthIPv6:
		n, err := p.unmarshalIP(b)
		if err != nil {
			return nil, nil, err
		}
		return p, b[n:], nil
	}
	return p, b, nil
}

// unmarshalIP reads an IP packet and returns its length, which is at most len(b).
func (p *Packet) unmarshalIP(b []byte) (int, error) {
	if p.EthType == EthIPv4 {
		if len(b) < ip4Header || b[0]>>4 != 4 {
			return 0, fmt.Errorf("no IPv4 header in %d bytes", len(b))
		}
		head, n := int(b[0]&15)*4, int(be.Uint16(b[2:]))
		if head < ip4Header || n < head || head > len(b) {
			return 0, fmt.Errorf("IPv4 header of %d bytes in a packet of %d, %d are there", head, n, len(b))
		}
		p.Size, n = n, min(n, len(b))
		p.TOS, p.TTL, p.Proto = b[1], b[8], b[9]
		p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		frag := be.Uint16(b[6:])
		p.DF = frag&dontFrag != 0
		p.setFrag(frag&0x1fff != 0, frag&moreFrags != 0)
		return n, p.unmarshalL4(b[head:n])
	}
	if len(b) < ip6Header || b[0]>>4 != 6 {
		return 0, fmt.Errorf("no IPv6 header in %d bytes", len(b))
	}
	n := ip6Header + int(be.Uint16(b[4:]))
	p.Size, n = n, min(n, len(b))
	p.TOS, p.Proto, p.TTL = b[0]<<4|b[1]>>4, b[6], b[7]
	p.Src, p.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	l4 := b[ip6Header:n]
	if p.Proto == 44 {
		if len(l4) < fragHeader {
			return 0, fmt.Errorf("the packet ends in its fragment header")
		}
		off := be.Uint16(l4[2:])
		p.Proto = l4[0]
		p.setFrag(off>>3 != 0, off&1 != 0)
		l4 = l4[fragHeader:]
	}
	return n, p.unmarshalL4(l4)
}

func (p *Packet) setFrag(later, more bool) {
	switch {
	case later:
		p.Frag = 3
	case more:
		p.Frag = 1
	}
}

// unmarshalL4 reads what follows the IP header. In an ICMP error the packet inside may be cut after 8 bytes.
func (p *Packet) unmarshalL4(b []byte) error {
	if p.Frag == 3 {
		return nil
	}
	short := func(n int) error {
		return fmt.Errorf("%s header of %d bytes, want %d", ProtoName(p.Proto), len(b), n)
	}
	switch p.Proto {
	case ProtoTCP, ProtoUDP, ProtoSCTP:
		if len(b) < 8 {
			return short(8)
		}
		p.SrcPort, p.DstPort = be.Uint16(b), be.Uint16(b[2:])
		if p.Proto == ProtoTCP {
			p.Seq = be.Uint32(b[4:])
			if len(b) >= 14 {
				p.Ack, p.TCPFlags = be.Uint32(b[8:]), b[13]
			}
		}
	case ProtoICMP, ProtoICMPv6:
		if len(b) < 8 {
			return short(8)
		}
		p.ICMPType, p.ICMPCode = b[0], b[1]
		return p.unmarshalICMP(b[4:])
	}
	return nil
}

func (p *Packet) unmarshalICMP(b []byte) error {
	switch {
	case p.IsICMPError():
		p.Inner = &Packet{EthType: p.EthType}
		_, err := p.Inner.unmarshalIP(b[4:])
		return err
	case p.Proto == ProtoICMPv6 && (p.ICMPType == ICMPv6NeighSolicit || p.ICMPType == ICMPv6NeighAdvert):
		if len(b) < 20 {
			return fmt.Errorf("neighbour discovery of %d bytes, want 20", len(b))
		}
		p.NDTarget = netip.AddrFrom16([16]byte(b[4:20]))
		for o := b[20:]; len(o) >= 8 && o[1] > 0 && len(o) >= int(o[1])*8; o = o[int(o[1])*8:] {
			switch o[0] {
			case 1:
				p.NDSLL = MAC(o[2:8])
			case 2:
				p.NDTLL = MAC(o[2:8])
			}
		}
	default:
		p.ICMPID, p.ICMPSeq = be.Uint16(b), be.Uint16(b[2:])
	}
	return nil
}

// MarshalUDP returns the frame of a UDP packet that carries data.
func MarshalUDP(p *Packet, data []byte) ([]byte, error) {
	q := *p
	q.Size = ip4Header + 8 + len(data)
	if p.EthType == EthIPv6 {
		q.Size += ip6Header - ip4Header
	}
	b, err := Marshal(&q)
	if err != nil {
		return nil, err
	}
	l4 := b[len(b)-8-len(data):]
	copy(l4[8:], data)
	l4[6], l4[7] = 0, 0
	return b, checksumL4(l4, &q)
}
