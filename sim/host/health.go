package host

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"towtank/datapath/host"
	"towtank/sim/packet"
)

// healthListener is the health check listener of a Service.
type healthListener struct{ host.Health }

func (h *healthListener) addrs() []netip.Addr {
	if h.Addrs == "" {
		return []netip.Addr{{}}
	}
	var out []netip.Addr
	for s := range strings.SplitSeq(h.Addrs, ",") {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// answer is the HTTP answer. It comes with the SYN+ACK already, so that a probe of one packet can read
// the status, and again with every request.
func (h *healthListener) answer(*packet.Packet) *packet.Packet {
	status := "503 Service Unavailable"
	if h.LocalEndpoints > 0 {
		status = "200 OK"
	}
	ns, name, _ := strings.Cut(h.Service, "/")
	return &packet.Packet{Payload: fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\n\r\n{\"service\":{\"namespace\":%q,\"name\":%q},\"localEndpoints\":%d}",
		status, ns, name, h.LocalEndpoints)}
}

func (n *Netns) putHealth(o host.Health) error {
	old := n.health[o.Port]
	h := &healthListener{o}
	for _, a := range h.addrs() {
		if n.socks.listeners[listenKey{packet.ProtoTCP, o.Port, a}] != nil && old == nil {
			return fmt.Errorf("health %d: listen tcp :%d: Address already in use", o.Port, o.Port)
		}
	}
	n.deleteHealth(o.Port)
	n.health[o.Port] = h
	for _, a := range h.addrs() {
		n.ListenOn(a, packet.ProtoTCP, o.Port, h.answer)
	}
	return nil
}

func (n *Netns) deleteHealth(port uint16) {
	h := n.health[port]
	if h == nil {
		return
	}
	for _, a := range h.addrs() {
		n.ListenOn(a, packet.ProtoTCP, port, nil)
	}
	delete(n.health, port)
}

// CloseHealth closes the health listeners: the process that served them, the agent, has ended.
func (n *Netns) CloseHealth() {
	for _, port := range slices.Sorted(maps.Keys(n.health)) {
		n.deleteHealth(port)
	}
}
