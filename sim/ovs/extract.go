package ovs

import (
	"net/netip"

	"towtank/datapath/openflow"
	"towtank/sim/packet"
)

// extract fills the header fields of the key; metadata fields stay as they are.
func (k *key) extract(p *packet.Packet) {
	k[wEthDst] = mac(p.EthDst)<<16 | uint64(p.EthType)
	tci := p.VLAN
	if tci != 0 {
		tci = tci&0xfff | 0x1000 | uint16(p.VLANPriority)<<13
	}
	k[wEthSrc] = mac(p.EthSrc)<<16 | uint64(tci)
	switch p.EthType {
	case packet.EthARP:
		k[wIPv4] = v4(p.ARPSPA)<<32 | v4(p.ARPTPA)
		k[wL4] = k[wL4]&^0xffff | uint64(p.ARPOp)
		k[wARPSHA], k[wARPTHA] = mac(p.ARPSHA), mac(p.ARPTHA)
		return
	case packet.EthIPv4:
		k[wIPv4] = v4(p.Src)<<32 | v4(p.Dst)
	case packet.EthIPv6:
		k.setVal(openflow.IPv6Src, openflow.AddrValue(p.Src))
		k.setVal(openflow.IPv6Dst, openflow.AddrValue(p.Dst))
	default:
		return
	}
	var frag uint64
	switch p.Frag {
	case 1:
		frag = openflow.FragAny
	case 2, 3:
		frag = openflow.FragAny | openflow.FragLater
	}
	k[wIP] = k[wIP]&(0xffff<<48) | uint64(p.Proto)<<40 | uint64(p.TOS)<<32 | uint64(p.TTL)<<24 | frag<<16
	var src, dst uint16
	switch p.Proto {
	case packet.ProtoTCP:
		src, dst = p.SrcPort, p.DstPort
		k[wIP] |= uint64(p.TCPFlags)
	case packet.ProtoUDP, packet.ProtoSCTP:
		src, dst = p.SrcPort, p.DstPort
	case packet.ProtoICMP, packet.ProtoICMPv6:
		src, dst = uint16(p.ICMPType), uint16(p.ICMPCode)
	}
	if frag&openflow.FragLater != 0 { // only the first fragment has the transport header
		src, dst = 0, 0
		k[wIP] &^= 0xffff
	}
	k[wL4] = k[wL4]&0xffff0000 | uint64(src)<<48 | uint64(dst)<<32
	if p.EthType == packet.EthIPv6 && p.Proto == packet.ProtoICMPv6 && (p.ICMPType == packet.ICMPv6NeighSolicit || p.ICMPType == packet.ICMPv6NeighAdvert) {
		k.setVal(openflow.NDTarget, openflow.AddrValue(p.NDTarget))
		k[wARPSHA], k[wARPTHA] = mac(p.NDSLL), mac(p.NDTLL)
	}
}

// deposit writes the header fields of the key into the packet.
func (k *key) deposit(p *packet.Packet) {
	p.EthDst = toMAC(k[wEthDst] >> 16)
	p.EthSrc = toMAC(k[wEthSrc] >> 16)
	p.EthType = k.ethType()
	p.VLAN, p.VLANPriority = 0, 0
	if tci := uint16(k[wEthSrc]); tci&0x1000 != 0 {
		p.VLAN, p.VLANPriority = tci&0x1fff, uint8(tci>>13)
	}
	switch p.EthType {
	case packet.EthARP:
		p.ARPSPA, p.ARPTPA = addr4(uint32(k[wIPv4]>>32)), addr4(uint32(k[wIPv4]))
		p.ARPOp = uint16(k[wL4])
		p.ARPSHA, p.ARPTHA = toMAC(k[wARPSHA]), toMAC(k[wARPTHA])
		return
	case packet.EthIPv4:
		p.Src, p.Dst = addr4(uint32(k[wIPv4]>>32)), addr4(uint32(k[wIPv4]))
	case packet.EthIPv6:
		p.Src, p.Dst = k.val(openflow.IPv6Src).Addr6(), k.val(openflow.IPv6Dst).Addr6()
	default:
		return
	}
	p.TOS, p.TTL = uint8(k[wIP]>>32), uint8(k[wIP]>>24)
	if k.laterFragment() {
		return
	}
	src, dst := uint16(k[wL4]>>48), uint16(k[wL4]>>32)
	switch p.Proto {
	case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP:
		p.SrcPort, p.DstPort = src, dst
	case packet.ProtoICMP, packet.ProtoICMPv6:
		p.ICMPType, p.ICMPCode = uint8(src), uint8(dst)
	}
	if p.EthType == packet.EthIPv6 && p.Proto == packet.ProtoICMPv6 && (p.ICMPType == packet.ICMPv6NeighSolicit || p.ICMPType == packet.ICMPv6NeighAdvert) {
		p.NDTarget = k.val(openflow.NDTarget).Addr6()
		p.NDSLL, p.NDTLL = toMAC(k[wARPSHA]), toMAC(k[wARPTHA])
	}
}

func (k *key) laterFragment() bool { return k[wIP]>>16&openflow.FragLater != 0 }

func (k *key) isIP() bool {
	return k.ethType() == packet.EthIPv4 || k.ethType() == packet.EthIPv6
}

// addrs returns the IP addresses.
func (k *key) addrs() (src, dst netip.Addr) {
	if k.ethType() == packet.EthIPv6 {
		return k.val(openflow.IPv6Src).Addr6(), k.val(openflow.IPv6Dst).Addr6()
	}
	return addr4(uint32(k[wIPv4] >> 32)), addr4(uint32(k[wIPv4]))
}

func (k *key) setAddrs(src, dst netip.Addr) {
	if k.ethType() == packet.EthIPv6 {
		k.setVal(openflow.IPv6Src, openflow.AddrValue(src))
		k.setVal(openflow.IPv6Dst, openflow.AddrValue(dst))
		return
	}
	k[wIPv4] = v4(src)<<32 | v4(dst)
}

func mac(m packet.MAC) uint64 { return openflow.MACValue(openflow.MAC(m)).Lo }

func toMAC(n uint64) packet.MAC { return packet.MAC(openflow.Num(n).MAC()) }

func v4(a netip.Addr) uint64 { return openflow.AddrValue(a.Unmap()).Lo & 0xffffffff }

func addr4(n uint32) netip.Addr { return openflow.Num(uint64(n)).Addr4() }
