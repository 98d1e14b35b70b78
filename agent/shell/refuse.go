package shell

import (
	"encoding/binary"
	"net/netip"

	"towtank/internal/checksum"
)

// Numbers of protocols and of ICMP, as IANA registers them.
const (
	protoICMP, protoTCP, protoICMPv6        = 1, 6, 58
	icmpUnreachable, icmpPort               = 3, 3
	icmpv6Unreachable, icmpv6Port           = 1, 4
	icmpv6ErrorsEnd                         = 128 // types below are errors
	flagFIN, flagSYN, flagRST, flagACK byte = 1, 2, 4, 16
)

// ethHeader is the length of an Ethernet header without VLAN tag.
const ethHeader = 14

// refusalTTL is the time to live of a refusal.
const refusalTTL = 128

// Refuse returns the frame that refuses a frame in the name of the address that it was sent to: a RST for TCP,
// port unreachable for the rest; mac is the sender. It is nil for what is never answered: what is not IP, a
// RST, an ICMP error, a fragment but the first (RFC 1122, section 3.2.2; RFC 9293, section 3.10.7.1), and for
// what is too short.
func Refuse(frame []byte, mac [6]byte) []byte {
	if len(frame) < ethHeader {
		return nil
	}
	ip := frame[ethHeader:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		if len(ip) < 20 || ip[0]>>4 != 4 {
			return nil
		}
		size, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
		if size < 20 || total < size || total > len(ip) || binary.BigEndian.Uint16(ip[6:])&0x1fff != 0 {
			return nil
		}
		src, dst := netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		proto, body := answer(ip[:total], ip[9], ip[size:total], src, dst)
		if body == nil {
			return nil
		}
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, refusalTTL, proto
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(body)))
		copy(h[12:], ip[16:20])
		copy(h[16:], ip[12:16])
		binary.BigEndian.PutUint16(h[10:], checksum.Sum(0).Add(h).Fold())
		return ethernet(frame, mac, h, body)
	case 0x86dd:
		if len(ip) < 40 || ip[0]>>4 != 6 {
			return nil
		}
		total := 40 + int(binary.BigEndian.Uint16(ip[4:]))
		if total > len(ip) {
			return nil
		}
		src, dst := netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
		proto, body := answer(ip[:total], ip[6], ip[40:total], src, dst)
		if body == nil {
			return nil
		}
		h := make([]byte, 40)
		h[0], h[6], h[7] = 0x60, proto, refusalTTL
		binary.BigEndian.PutUint16(h[4:], uint16(len(body)))
		copy(h[8:], ip[24:40])
		copy(h[24:], ip[8:24])
		return ethernet(frame, mac, h, body)
	}
	return nil
}

func ethernet(frame []byte, mac [6]byte, parts ...[]byte) []byte {
	out := append([]byte{}, frame[6:12]...)
	out = append(append(out, mac[:]...), frame[12:14]...)
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// answer returns what refuses a packet, from dst to src.
func answer(packet []byte, proto byte, payload []byte, src, dst netip.Addr) (byte, []byte) {
	switch {
	case proto == protoTCP:
		return protoTCP, reset(payload, src, dst)
	case proto == protoICMP && (len(payload) == 0 || payload[0] != 8), proto == protoICMPv6 && (len(payload) == 0 || payload[0] < icmpv6ErrorsEnd):
		return 0, nil // of ICMP only an echo request is refused
	case src.Is4():
		b := append([]byte{icmpUnreachable, icmpPort, 0, 0, 0, 0, 0, 0}, packet[:min(len(packet), 548)]...) // RFC 1812, section 4.3.2.3
		binary.BigEndian.PutUint16(b[2:], checksum.Sum(0).Add(b).Fold())
		return protoICMP, b
	}
	b := append([]byte{icmpv6Unreachable, icmpv6Port, 0, 0, 0, 0, 0, 0}, packet[:min(len(packet), 1232)]...) // RFC 4443, section 3.1
	binary.BigEndian.PutUint16(b[2:], checksum.Pseudo(dst, src, protoICMPv6, len(b)).Add(b).Fold())
	return protoICMPv6, b
}

func reset(tcp []byte, src, dst netip.Addr) []byte {
	if len(tcp) < 20 || tcp[13]&flagRST != 0 {
		return nil
	}
	size := int(tcp[12]>>4) * 4
	if size < 20 || size > len(tcp) {
		return nil
	}
	b := make([]byte, 20)
	copy(b[0:], tcp[2:4])
	copy(b[2:], tcp[0:2])
	b[12], b[13] = 5<<4, flagRST
	if tcp[13]&flagACK != 0 {
		copy(b[4:], tcp[8:12]) // in their sequence
	} else {
		next := binary.BigEndian.Uint32(tcp[4:]) + uint32(len(tcp)-size)
		for _, f := range []byte{flagSYN, flagFIN} {
			if tcp[13]&f != 0 {
				next++
			}
		}
		binary.BigEndian.PutUint32(b[8:], next)
		b[13] |= flagACK
	}
	binary.BigEndian.PutUint16(b[16:], checksum.Pseudo(dst, src, protoTCP, len(b)).Add(b).Fold())
	return b
}
