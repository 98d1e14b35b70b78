package ovs

import (
	"towtank/datapath/openflow"
)

// key is a packet with its metadata as flat words: what flows match and actions change. Fields that
// exclude each other by Ethernet type or protocol share their place, as they do in OVS.
type key [keyWords]uint64

const (
	wEthDst    = 0 // eth_dst 48, eth_type 16
	wEthSrc    = 1 // eth_src 48, vlan_tci 16
	wIP        = 2 // in_port 16, nw_proto 8, nw_tos 8, nw_ttl 8, ip_frag 8, tcp_flags 16
	wIPv4      = 3 // nw_src or arp_spa 32, nw_dst or arp_tpa 32
	wIPv6Src   = 4 // 2 words
	wIPv6Dst   = 6
	wL4        = 8 // source port or icmp type 16, destination port or icmp code 16, ct_zone 16, arp_op 16
	wCT        = 9 // ct_state 32, ct_mark 32
	wCTLabel   = 10
	wRegs      = 12 // two registers a word, the even one in the upper half
	wPktMark   = 20 // 32
	wMetadata  = 21
	wTunID     = 22
	wTunIPv4   = 23 // tun_src 32, tun_dst 32
	wTunSrc6   = 24
	wTunDst6   = 26
	wARPSHA    = 28 // arp_sha or nd_sll
	wARPTHA    = 29 // arp_tha or nd_tll
	wNDTarget  = 30
	wCTIPv4    = 32 // ct_nw_src 32, ct_nw_dst 32
	wCTIPv6Src = 33
	wCTIPv6Dst = 35
	wCTL4      = 37 // ct_tp_src 16, ct_tp_dst 16, ct_nw_proto 8
	keyWords   = 38
)

// place is where a field is in the key: bits from shift up in a word; 128-bit fields take the word
// (upper half) and the next.
type place struct{ word, shift uint8 }

const unmodelled = 255

// places is indexed by openflow.Field.
var places = func() (p [256]place) {
	for i := range p {
		p[i].word = unmodelled
	}
	for f, at := range map[openflow.Field]place{
		openflow.PktMark: {wPktMark, 0}, openflow.CTState: {wCT, 32}, openflow.CTMark: {wCT, 0}, openflow.CTLabel: {wCTLabel, 0},
		openflow.CTZone: {wL4, 16}, openflow.ARPOp: {wL4, 0}, openflow.Metadata: {wMetadata, 0},
		openflow.CTNwSrc: {wCTIPv4, 32}, openflow.CTNwDst: {wCTIPv4, 0}, openflow.CTIPv6Src: {wCTIPv6Src, 0}, openflow.CTIPv6Dst: {wCTIPv6Dst, 0},
		openflow.CTTpSrc: {wCTL4, 48}, openflow.CTTpDst: {wCTL4, 32}, openflow.CTNwProto: {wCTL4, 0},
		openflow.EthDst: {wEthDst, 16}, openflow.EthType: {wEthDst, 0}, openflow.EthSrc: {wEthSrc, 16}, openflow.VLANTCI: {wEthSrc, 0},
		openflow.VLANVID: {wEthSrc, 0}, openflow.VLANPCP: {wEthSrc, 13},
		openflow.InPort: {wIP, 48}, openflow.IPProto: {wIP, 40}, openflow.IPTOS: {wIP, 32}, openflow.IPDSCP: {wIP, 34}, openflow.IPECN: {wIP, 32},
		openflow.IPTTL: {wIP, 24}, openflow.IPFrag: {wIP, 16}, openflow.TCPFlags: {wIP, 0},
		openflow.IPSrc: {wIPv4, 32}, openflow.IPDst: {wIPv4, 0}, openflow.ARPSPA: {wIPv4, 32}, openflow.ARPTPA: {wIPv4, 0},
		openflow.IPv6Src: {wIPv6Src, 0}, openflow.IPv6Dst: {wIPv6Dst, 0},
		openflow.TCPSrc: {wL4, 48}, openflow.TCPDst: {wL4, 32}, openflow.UDPSrc: {wL4, 48}, openflow.UDPDst: {wL4, 32},
		openflow.SCTPSrc: {wL4, 48}, openflow.SCTPDst: {wL4, 32}, openflow.ICMPType: {wL4, 48}, openflow.ICMPCode: {wL4, 32},
		openflow.ICMPv6Type: {wL4, 48}, openflow.ICMPv6Code: {wL4, 32},
		openflow.TunID: {wTunID, 0}, openflow.TunSrc: {wTunIPv4, 32}, openflow.TunDst: {wTunIPv4, 0},
		openflow.TunIPv6Src: {wTunSrc6, 0}, openflow.TunIPv6Dst: {wTunDst6, 0},
		openflow.ARPSHA: {wARPSHA, 0}, openflow.NDSLL: {wARPSHA, 0}, openflow.ARPTHA: {wARPTHA, 0}, openflow.NDTLL: {wARPTHA, 0},
		openflow.NDTarget: {wNDTarget, 0},
	} {
		p[f] = at
	}
	for n := range 16 {
		p[openflow.Reg(n)] = place{uint8(wRegs + n/2), uint8(32 * (1 - n%2))}
	}
	for n := range 8 {
		p[openflow.XReg0+openflow.Field(n)] = place{uint8(wRegs + n), 0}
	}
	for n := range 4 {
		p[openflow.XXReg(n)] = place{uint8(wRegs + 2*n), 0}
	}
	return p
}()

// get returns the bits of a range.
func (k *key) get(r openflow.Range) openflow.Value {
	at := places[r.Field]
	if r.Field.Bits() > 64 {
		v := openflow.Value{Hi: k[at.word], Lo: k[at.word+1]}
		return v.Shr(uint(r.Lo)).And(openflow.Ones(r.Bits()))
	}
	return openflow.Num(k[at.word] >> (uint(at.shift) + uint(r.Lo))).And(openflow.Ones(r.Bits()))
}

// set replaces the bits of mask in a field.
func (k *key) set(f openflow.Field, v, mask openflow.Value) {
	at := places[f]
	if f.Bits() > 64 {
		k[at.word] = k[at.word]&^mask.Hi | v.Hi&mask.Hi
		k[at.word+1] = k[at.word+1]&^mask.Lo | v.Lo&mask.Lo
		return
	}
	m := mask.Lo << at.shift
	k[at.word] = k[at.word]&^m | v.Lo<<at.shift&m
}

// setRange replaces the bits of a range.
func (k *key) setRange(r openflow.Range, v openflow.Value) {
	k.set(r.Field, v.Shl(uint(r.Lo)), r.Mask())
}

// num returns a field of up to 64 bits.
func (k *key) num(f openflow.Field) uint64 { return k.get(f.All()).Lo }

// setNum sets a field of up to 64 bits.
func (k *key) setNum(f openflow.Field, n uint64) {
	k.set(f, openflow.Num(n), openflow.Ones(f.Bits()))
}

// val returns a field of up to 128 bits.
func (k *key) val(f openflow.Field) openflow.Value { return k.get(f.All()) }

// setVal sets a field of up to 128 bits.
func (k *key) setVal(f openflow.Field, v openflow.Value) { k.set(f, v, openflow.Ones(f.Bits())) }

func (k *key) ethType() uint16 { return uint16(k[wEthDst]) }
func (k *key) proto() uint8    { return uint8(k[wIP] >> 40) }
func (k *key) inPort() uint32  { return portNumber(uint16(k[wIP] >> 48)) }

func (k *key) setInPort(p uint32) { k[wIP] = k[wIP]&^(0xffff<<48) | uint64(uint16(p))<<48 }

// portNumber returns the port of a 16-bit number: the reserved ones are the last.
func portNumber(n uint16) uint32 {
	if n >= 0xfff8 {
		return uint32(n) | 0xffff0000
	}
	return uint32(n)
}

// maskWord is a part of a mask: the bits of one word of the key.
type maskWord struct {
	word uint8
	bits uint64
}

// compile turns a match into mask words and the values under them, in the order of words. It fails for
// a field that the model does not have.
func compile(m openflow.Match, mask []maskWord, values []uint64) ([]maskWord, []uint64, openflow.Field) {
	var bits, vals key
	for _, f := range m.Fields() {
		at := places[f.Field]
		if at.word == unmodelled {
			return nil, nil, f.Field
		}
		bits.set(f.Field, f.Mask, openflow.Ones(f.Field.Bits()))
		vals.set(f.Field, f.Value, f.Mask)
	}
	for i := range bits {
		if bits[i] != 0 {
			mask = append(mask, maskWord{uint8(i), bits[i]})
			values = append(values, vals[i])
		}
	}
	return mask, values, openflow.FieldNone
}
