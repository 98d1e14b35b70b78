package host

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"towtank/datapath/host"
	"towtank/sim/packet"
)

// healthListener is the health check listener of a Service.
type healthListener struct {
	host.Health
	n *Netns
}

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
// the status, and again with every request. While the process that serves it is stopped, the kernel accepts
// connections, and nobody reads from them.
func (h *healthListener) answer(*packet.Packet) *packet.Packet {
	if h.n.healthPaused {
		return &packet.Packet{}
	}
	status, header, body := h.Answer()
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	for _, k := range slices.Sorted(maps.Keys(header)) {
		fmt.Fprintf(&b, "%s: %s\r\n", k, header[k])
	}
	return &packet.Packet{Payload: b.String() + "\r\n" + body}
}

func (n *Netns) putHealth(o host.Health) error {
	old := n.health[o.Port]
	h := &healthListener{o, n}
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

// PauseHealth stops the process that serves the health listeners, or has it go on.
func (n *Netns) PauseHealth(paused bool) { n.healthPaused = paused }

// CloseHealth closes the health listeners: the process that served them, the agent, has ended.
func (n *Netns) CloseHealth() {
	n.healthPaused = false
	for _, port := range slices.Sorted(maps.Keys(n.health)) {
		n.deleteHealth(port)
	}
}
