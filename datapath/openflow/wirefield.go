package openflow

import "fmt"

// Classes of OXM headers (OpenFlow 1.5, 7.2.3.3, and Nicira's).
const (
	classNXM0   = 0x0000 // NXM_OF
	classNXM1   = 0x0001 // NXM_NX
	classOXM    = 0x8000 // OXM_OF
	classPktReg = 0x8001 // OXM_OF_PKT_REG
)

// oxm returns the header of a field without mask: class, number and length of the value in bytes.
func oxm(class, number, bytes uint32) uint32 { return class<<16 | number<<9 | bytes }

const (
	oxmMasked = 1 << 8
	oxmInPort = classOXM<<16 | 4 // 32 bits; NXM_OF_IN_PORT has 16
)

// wireHeaders has the header with which OVS sends a field in OpenFlow 1.5. Two fields are sent otherwise in
// a match: in_port with 32 bits, vlan_tci as VLAN_VID and VLAN_PCP.
var wireHeaders = [numFields]uint32{
	PktMark:    oxm(classNXM1, 33, 4),
	CTState:    oxm(classNXM1, 105, 4),
	CTZone:     oxm(classNXM1, 106, 2),
	CTMark:     oxm(classNXM1, 107, 4),
	CTLabel:    oxm(classNXM1, 108, 16),
	CTNwProto:  oxm(classNXM1, 119, 1),
	CTNwSrc:    oxm(classNXM1, 120, 4),
	CTNwDst:    oxm(classNXM1, 121, 4),
	CTIPv6Src:  oxm(classNXM1, 122, 16),
	CTIPv6Dst:  oxm(classNXM1, 123, 16),
	CTTpSrc:    oxm(classNXM1, 124, 2),
	CTTpDst:    oxm(classNXM1, 125, 2),
	EthType:    oxm(classOXM, 5, 2),
	TunID:      oxm(classOXM, 38, 8),
	TunSrc:     oxm(classNXM1, 31, 4),
	TunDst:     oxm(classNXM1, 32, 4),
	TunIPv6Src: oxm(classNXM1, 109, 16),
	TunIPv6Dst: oxm(classNXM1, 110, 16),
	Metadata:   oxm(classOXM, 2, 8),
	InPort:     oxm(classNXM0, 0, 2),
	VLANTCI:    oxm(classNXM0, 4, 2),
	EthSrc:     oxm(classOXM, 4, 6),
	EthDst:     oxm(classOXM, 3, 6),
	IPv6Src:    oxm(classOXM, 26, 16),
	IPv6Dst:    oxm(classOXM, 27, 16),
	ARPSPA:     oxm(classOXM, 22, 4),
	ARPTPA:     oxm(classOXM, 23, 4),
	IPSrc:      oxm(classOXM, 11, 4),
	IPDst:      oxm(classOXM, 12, 4),
	ARPOp:      oxm(classOXM, 21, 2),
	IPProto:    oxm(classOXM, 10, 1),
	ARPSHA:     oxm(classOXM, 24, 6),
	ARPTHA:     oxm(classOXM, 25, 6),
	IPTOS:      oxm(classNXM0, 5, 1),
	IPTTL:      oxm(classNXM1, 29, 1),
	IPFrag:     oxm(classNXM1, 26, 1),
	ICMPType:   oxm(classOXM, 19, 1),
	ICMPCode:   oxm(classOXM, 20, 1),
	ICMPv6Type: oxm(classOXM, 29, 1),
	ICMPv6Code: oxm(classOXM, 30, 1),
	NDTarget:   oxm(classOXM, 31, 16),
	NDSLL:      oxm(classOXM, 32, 6),
	NDTLL:      oxm(classOXM, 33, 6),
	TCPSrc:     oxm(classOXM, 13, 2),
	TCPDst:     oxm(classOXM, 14, 2),
	UDPSrc:     oxm(classOXM, 15, 2),
	UDPDst:     oxm(classOXM, 16, 2),
	SCTPSrc:    oxm(classOXM, 17, 2),
	SCTPDst:    oxm(classOXM, 18, 2),
	TCPFlags:   oxm(classOXM, 42, 2),
	VLANVID:    oxm(classOXM, 6, 2),
	VLANPCP:    oxm(classOXM, 7, 1),
	IPDSCP:     oxm(classOXM, 8, 1),
	IPECN:      oxm(classOXM, 9, 1),
}

// wireAliases are the older headers of the same fields; they are understood, not sent.
var wireAliases = map[Field][]uint32{
	EthDst: {oxm(classNXM0, 1, 6)}, EthSrc: {oxm(classNXM0, 2, 6)}, EthType: {oxm(classNXM0, 3, 2)}, IPProto: {oxm(classNXM0, 6, 1)},
	IPSrc: {oxm(classNXM0, 7, 4)}, IPDst: {oxm(classNXM0, 8, 4)}, TCPSrc: {oxm(classNXM0, 9, 2)}, TCPDst: {oxm(classNXM0, 10, 2)},
	UDPSrc: {oxm(classNXM0, 11, 2)}, UDPDst: {oxm(classNXM0, 12, 2)}, ICMPType: {oxm(classNXM0, 13, 1)}, ICMPCode: {oxm(classNXM0, 14, 1)},
	ARPOp: {oxm(classNXM0, 15, 2)}, ARPSPA: {oxm(classNXM0, 16, 4)}, ARPTPA: {oxm(classNXM0, 17, 4)}, TunID: {oxm(classNXM1, 16, 8)},
	ARPSHA: {oxm(classNXM1, 17, 6)}, ARPTHA: {oxm(classNXM1, 18, 6)}, IPv6Src: {oxm(classNXM1, 19, 16)}, IPv6Dst: {oxm(classNXM1, 20, 16)},
	ICMPv6Type: {oxm(classNXM1, 21, 1)}, ICMPv6Code: {oxm(classNXM1, 22, 1)}, NDTarget: {oxm(classNXM1, 23, 16)}, NDSLL: {oxm(classNXM1, 24, 6)},
	NDTLL: {oxm(classNXM1, 25, 6)}, IPECN: {oxm(classNXM1, 28, 1)}, TCPFlags: {oxm(classNXM1, 34, 2)}, InPort: {oxmInPort},
}

var fieldOfHeader = map[uint32]Field{}

func init() {
	for n := range uint32(16) {
		wireHeaders[Reg0+Field(n)] = oxm(classNXM1, n, 4)
	}
	for n := range uint32(8) {
		wireHeaders[XReg0+Field(n)] = oxm(classPktReg, n, 8)
	}
	for n := range uint32(4) {
		wireHeaders[XXReg0+Field(n)] = oxm(classNXM1, 111+n, 16)
	}
	for f := FieldNone + 1; f < numFields; f++ {
		fieldOfHeader[wireHeaders[f]] = f
		for _, h := range wireAliases[f] {
			fieldOfHeader[h] = f
		}
	}
}

// fieldOfWire returns the field of a header without mask bit.
func fieldOfWire(h uint32) (Field, error) {
	f, ok := fieldOfHeader[h]
	if !ok {
		return FieldNone, fmt.Errorf("field %#08x (class %#04x, number %d, %d bytes) is not supported", h, h>>16, h>>9&0x7f, h&0xff)
	}
	return f, nil
}
