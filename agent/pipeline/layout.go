package pipeline

import (
	"hash/fnv"
	"strings"

	"towtank/datapath/openflow"
)

// The tables, in the order in which a packet meets them.
//
//	 0 Root ──arp──▶ 1 ARPGuard        ──nd──▶ 2 NDGuard
//	   │ip
//	10 Classifier: who sent it, and may it ──▶ 20 UnSNAT ──▶ 21 Zone (ct) ──▶ 22 State
//	   22 new ──▶ 30 PreRouting: resubmit to 31 NodePortMark, 32 Affinity (learned only), 33 ServiceLB
//	              33 ──group──▶ 35 EndpointDNAT ──▶ 40      (DSR: 35 ──▶ 36 DSR ──▶ tunnel)
//	   22 known ─▶ 40 L3Forwarding ──▶ 41 EgressMark ──▶ 42 EgressQoS ─┐
//	                        └──▶ 43 DecTTL ──▶ 50 SNATMark ──▶ 51 SNAT ─┴─▶ 60 L2Forwarding ──▶ 61 Commit ──▶ 70 Output
const (
	TableRoot         = 0
	TableARPGuard     = 1
	TableNDGuard      = 2
	TableClassifier   = 10
	TableUnSNAT       = 20
	TableZone         = 21
	TableState        = 22
	TablePreRouting   = 30
	TableNodePortMark = 31
	TableAffinity     = 32 // learned flows only
	TableServiceLB    = 33
	TableEndpointDNAT = 35
	TableDSR          = 36
	TableL3Forwarding = 40
	TableEgressMark   = 41
	TableEgressQoS    = 42
	TableDecTTL       = 43
	TableSNATMark     = 50
	TableSNAT         = 51
	TableL2Forwarding = 60
	TableCommit       = 61
	TableOutput       = 70
)

var tableNames = map[uint8]string{
	TableRoot: "Root", TableARPGuard: "ARPGuard", TableNDGuard: "NDGuard", TableClassifier: "Classifier",
	TableUnSNAT: "UnSNAT", TableZone: "Zone", TableState: "State", TablePreRouting: "PreRouting",
	TableNodePortMark: "NodePortMark", TableAffinity: "Affinity", TableServiceLB: "ServiceLB",
	TableEndpointDNAT: "EndpointDNAT", TableDSR: "DSR", TableL3Forwarding: "L3Forwarding", TableEgressMark: "EgressMark",
	TableEgressQoS: "EgressQoS", TableDecTTL: "DecTTL", TableSNATMark: "SNATMark", TableSNAT: "SNAT",
	TableL2Forwarding: "L2Forwarding", TableCommit: "Commit", TableOutput: "Output",
}

// TableName returns the name of a table, "" if it is not ours.
func TableName(t uint8) string { return tableNames[t] }

// Registers. Every range is used for one thing only.
var (
	regSource     = openflow.Reg(0).Range(0, 3)
	regDest       = openflow.Reg(0).Range(4, 7)
	regRouted     = openflow.Reg(0).Range(9, 9)   // MAC addresses are to be rewritten
	regNoEndpoint = openflow.Reg(0).Range(14, 14) // refuse
	regCarrier    = openflow.Reg(0).Range(18, 18) // the source MAC carries a mark already
	regToPort     = openflow.Reg(0).Range(21, 21) // reg1 is where it goes
	regOut        = openflow.Reg(1).All()
	regEndpoint4  = openflow.Reg(3).All()
	regEndpoint6  = openflow.XXReg(3).All()
	regPort       = openflow.Reg(4).Range(0, 15)
	regLB         = openflow.Reg(4).Range(16, 18) // state of the load balancer
	regPortLB     = openflow.Reg(4).Range(0, 18)  // port and state in one match
	regNodePort   = openflow.Reg(4).Range(19, 19) // to a NodePort address
	regExternal   = openflow.Reg(4).Range(21, 21) // to a NodePort, load-balancer or external address
	regDSR        = openflow.Reg(4).Range(22, 22) // the endpoint's node is to answer the client itself
	regDSRKnown   = openflow.Reg(4).Range(23, 23) // and was picked for this connection before
	regFromLocal  = openflow.Reg(4).Range(28, 28) // from a Pod of this node, or from the node
	regMark       = openflow.Reg(5).All()         // Egress mark
	regService    = openflow.Reg(7).All()         // the group that the endpoint was picked from
)

// Values of regSource and of the same bits of ct_mark.
const (
	fromTunnel  = 1
	fromGateway = 2
	fromPod     = 3
)

// Values of regDest.
const (
	toTunnel  = 1
	toGateway = 2
)

// Values of regLB.
const (
	lbSelect   = 1 // no endpoint yet
	lbSelected = 2 // the registers name the endpoint
	lbLearn    = 3 // picked, to be remembered
)

// Bits of ct_mark.
var (
	ctSource  = openflow.CTMark.Range(0, 3)
	ctService = openflow.CTMark.Range(4, 4) // destination was translated
	ctSNAT    = openflow.CTMark.Range(5, 5) // source is to be translated
	ctHairpin = openflow.CTMark.Range(6, 6) // leaves by the port it came from
)

// ServiceMark is the bit of ct_mark that connections to Services carry.
const ServiceMark = 0x10

// Cookie kinds: the uppermost 8 bits of a cookie say which kind of unit made the flow.
const (
	CookieHost = 1 + iota
	CookieSandbox
	CookieNode
	CookieService
	CookieAddress // an address that several Services share
	CookieEgressIP
	CookiePodEgress // = openflow.MaxCookieKind
)

// Cookie returns the cookie of flows of a unit: its kind, and 56 bits of the hash of its name.
func Cookie(kind uint64, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return kind<<56 | h.Sum64()&(1<<56-1)
}

// cookieKinds are the kinds of cookies by the kinds of units whose flows have them.
var cookieKinds = map[string]uint64{
	"host": CookieHost, "sandbox": CookieSandbox, "node": CookieNode, "svcport": CookieService, "svcskip": CookieService,
	"egressip": CookieEgressIP, "podegress": CookiePodEgress,
}

// CookieOf returns the cookie that the flows of a unit have, 0 if a unit of its kind has none.
func CookieOf(unit string) uint64 {
	kind, _, _ := strings.Cut(unit, "/")
	if kind == "host" {
		unit = kind // see Static
	}
	if c, ok := cookieKinds[kind]; ok {
		return Cookie(c, unit)
	}
	return 0
}

// Meters that are not an Egress mark.
const MeterRefuse = 256 // packets to Services without endpoint, to the agent

// UserdataRefuse marks packet-ins of connections that are to be refused.
const UserdataRefuse = 1
