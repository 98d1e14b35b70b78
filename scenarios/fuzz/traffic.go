package fuzz

import (
	"fmt"
	"slices"
)

var trafficActions = []action{
	{topicTraffic, 3, trafficStream, nil, (*generator).probe},
	{topicTraffic, 1, trafficStream, func(g *generator) bool { return len(g.conns) < 4 }, (*generator).stream},
	{topicTraffic, 1, trafficStream, func(g *generator) bool { return len(g.streams) > 0 }, (*generator).streamStop},
}

// client draws where traffic comes from.
func (g *generator) client() string {
	if len(g.podOrder) > 0 && g.often(60) {
		return g.anyPod()
	}
	if g.often(40) {
		return "ext"
	}
	return "node/" + g.node()
}

// probe makes a new connection and expects nothing: the reference model knows what to expect.
func (g *generator) probe() {
	from := g.client()
	text := fmt.Sprintf("probe %s -> %s", from, g.destination(from))
	if from == "ext" {
		text += " next=" + g.node()
	}
	g.add("%s", text)
}

// destination draws where traffic goes: a Service by any of its addresses, a Pod, an external host.
func (g *generator) destination(from string) string {
	for range 4 {
		switch g.rng.IntN(8) {
		case 0, 1, 2, 3:
			if len(g.services) == 0 {
				continue
			}
			s := g.anyService()
			p := pick(g, s.ports...)
			at := fmt.Sprintf(":%d/%s", p.number, p.proto)
			switch {
			case s.kind != "ClusterIP" && g.often(40):
				return fmt.Sprintf("nodeport/%s/%s:%s", g.node(), s.name, p.name)
			case s.balancer != "" && g.often(50):
				return fmt.Sprintf("lb/%s%s", s.name, at)
			case from == "ext" && s.balancer == "":
				continue
			}
			return fmt.Sprintf("svc/%s%s", s.name, at)
		case 4, 5:
			if len(g.podOrder) > 0 && from != "ext" {
				return g.anyPod() + pick(g, "", "", ":8080/udp", "/icmp", ":9")
			}
		case 6, 7:
			if from != "ext" {
				return "ext" + pick(g, "", "", ":8080/udp")
			}
		}
	}
	return "node/" + g.node()
}

// stream begins a stream of which nothing is expected but that invariants hold for its packets.
func (g *generator) stream() {
	if len(g.podOrder) == 0 || len(g.streams) >= 2 {
		g.probe()
		return
	}
	g.counter++
	name := fmt.Sprintf("s%d", g.counter)
	from := g.anyPod()
	flow := ""
	if g.often(50) {
		flow = " flow=one"
	}
	to := "ext"
	if len(g.services) > 0 && g.often(50) {
		s := g.anyService()
		p := pick(g, s.ports...)
		to = fmt.Sprintf("svc/%s:%d/%s", s.name, p.number, p.proto)
	}
	g.add("stream %s %s -> %s every=%s%s", name, from, to, pick(g, "1s", "5s", "20s"), flow)
	g.streams = append(g.streams, name)
}

func (g *generator) streamStop() {
	s := pick(g, g.streams...)
	g.add("stream-stop %s", s)
	g.streams = remove(g.streams, s)
}

// canaries makes Pods and a Service that no other step touches.
func (g *generator) canaries() {
	if g.canary = g.gentle && g.often(70); !g.canary {
		return
	}
	g.add("namespace canary")
	g.add("pod canary/a node=%s canary=yes", g.nodes[0])
	last := g.nodes[len(g.nodes)-1]
	g.add("pod canary/b node=%s canary=yes", last)
	g.apply("canary", "apiVersion: v1\nkind: Service\nmetadata: {name: canary, namespace: canary}\n"+
		"spec: {selector: {canary: \"yes\"}, ports: [{name: tcp, port: 80, targetPort: 8080}, {name: udp, port: 53, protocol: UDP, targetPort: 8080}]}\n")
}

// startCanaries begins streams that must not lose a packet, whatever happens to others.
func (g *generator) startCanaries() {
	if !g.canary || g.often(40) {
		return
	}
	g.counter++
	name := fmt.Sprintf("canary%d", g.counter)
	to := pick(g, "canary/b", "svc/canary/canary:80", "svc/canary/canary:53/udp", "ext")
	flow := pick(g, "", " flow=one")
	g.add("stream %s canary/a -> %s every=%s%s", name, to, pick(g, "2s", "10s"), flow)
	g.canaryStreams = append(g.canaryStreams, name)
}

func (g *generator) stopCanaries() {
	for _, s := range slices.Clone(g.canaryStreams) {
		g.add("stream-stop %s expect lost<=0", s)
	}
	g.canaryStreams = nil
}
