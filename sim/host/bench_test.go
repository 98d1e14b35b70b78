package host

import (
	"testing"

	"towtank/sim/packet"
)

// BenchmarkForward is one datagram from the gateway device to an external host and its answer back,
// with masquerading: two namespaces, four hooks with conntrack.
func BenchmarkForward(b *testing.B) {
	g := newGateway(&testing.T{})
	g.exec(g.node, "iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE")
	p := &packet.Packet{EthSrc: podMAC, EthDst: gwMAC, Proto: packet.ProtoUDP, DstPort: 8080}
	p.SetIPs(addr("10.10.1.2"), addr("172.18.0.100"))
	b.ReportAllocs()
	for b.Loop() {
		g.sent = g.sent[:0]
		p.SrcPort++
		g.node.Receive("gw0", p)
		if len(g.sent) != 1 {
			b.Fatal("no answer")
		}
	}
}
