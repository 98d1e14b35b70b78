// Package openflow holds OpenFlow flows, groups and meters as typed, immutable values with one
// canonical text each: what ovs-ofctl dump-flows --no-stats, dump-groups and dump-meters print after
// the object was written. Two objects are equal if their texts are.
//
//	f, err := openflow.NewFlow(11, 200, cookie).
//		Match(openflow.TCP, openflow.IPDst.IsAddr(vip), openflow.TCPDst.Is(80), epState.Is(1)).
//		Actions(epState.Set(2), openflow.Reg(7).Set(5), openflow.ToGroup(5)).
//		Build()
//
// Terms of a match: the shorthands IP, IPv6, ARP, ICMP, TCP, UDP, SCTP, ICMP6, TCP6, UDP6, SCTP6 (or
// IPFamily, L4); Field.Is, IsMasked, IsAddr, IsPrefix, IsMAC; Range.Is for some bits of a field
// (Reg(4).Range(16, 18)); InPortIs, Src, Dst, SrcAddr, DstAddr, SrcPort, DstPort, CTStateIs,
// CTStateText, VLANIs, VLANTagged, NoVLAN. Several terms on one register are merged.
//
// Actions: Output, OutputInPort, OutputReg, Normal, Controller{…}, ToGroup, Resubmit, Goto, ToMeter,
// Field.Set, SetAddr, SetMAC, SetMasked, Range.Set, Range.SetValue, Move, CT{…} (with SNAT, DNAT,
// StoredNAT, ToTable), CTClear, Learn{…} (with LearnMatch, LearnMatchFrom, LearnMatchValue, LearnLoad,
// LearnLoadFrom, LearnOutput), DecTTL, PushVLAN, PopVLAN. No action is drop.
//
// Build, NewGroup and NewMeter refuse what OVS refuses whatever else is on the switch: missing
// prerequisites, a CT field set outside ct(exec), meter not first, goto_table backwards. ParseFlow,
// ParseGroup and ParseMeter take what ovs-ofctl takes and return the canonical object.
package openflow
