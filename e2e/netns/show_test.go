//go:build linux

package netns

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"towtank/agent/shell"
	"towtank/e2e/peer"
	"towtank/scenarios"
	"towtank/scenarios/check"
	"towtank/scenarios/lang"
	"towtank/scenarios/report"
	"towtank/sim/packet"
)

// build runs a scenario and leaves its nodes for the test. These tests take minutes: make e2e runs them.
func build(t *testing.T, text string) *cluster {
	t.Helper()
	if os.Getenv("TOWTANK_E2E") != "1" {
		t.Skip("part of make e2e (TOWTANK_E2E=1)")
	}
	if err := Available(); err != nil {
		t.Fatal(err)
	}
	f, err := lang.Parse("show.scenario", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := ourPrograms()
	if err != nil {
		t.Fatal(err)
	}
	var c *cluster
	t.Cleanup(func() {
		if c != nil {
			c.close()
		}
	})
	var b bytes.Buffer
	end, err := scenarios.Run(f, scenarios.Options{NoEnd: true, Backend: "netns", Cannot: cannot,
		NewTank: func(o lang.Options, _ func([]check.Result)) (scenarios.Tank, error) {
			var err error
			c, err = newCluster(o, p)
			return c, err
		}}, &report.Text{W: &b})
	if err != nil || end.Outcome != scenarios.Pass {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return c
}

func podOf(t *testing.T, c *cluster, key string) *source {
	t.Helper()
	s, err := c.PodSource(key)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*source)
}

const service = `
-- s.yaml --
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.99
  selector: {app: b}
  ports: [{name: tcp, port: 80, targetPort: 8080}, {name: udp, protocol: UDP, port: 80, targetPort: 8080}]
`

// transferBytes is what a transfer has.
const transferBytes = 100 << 20

func TestShowTransfers(t *testing.T) {
	c := build(t, "nodes n1 n2\npod default/a node=n1\npod default/b node=n2 app=b\napply s.yaml\nsettle\nprobe default/a -> svc/default/web:tcp expect ok\n"+service)
	a, b := podOf(t, c, "default/a"), podOf(t, c, "default/b")
	for name, to := range map[string]netip.AddrPort{
		"Pod": netip.AddrPortFrom(b.Addr(false), defaultPort), "Service": netip.MustParseAddrPort("10.96.0.99:80"),
	} {
		began := time.Now()
		sent, received, err := a.space.peer.Transfer(peer.Flow{Proto: "tcp", To: to.Addr(), Port: to.Port()}, transferBytes)
		if err != nil || sent != received {
			t.Errorf("to the %s: sent %s, received %s, %v", name, sent, received, err)
		}
		t.Logf("100 MiB to the %s on another node: %s", name, time.Since(began).Round(10*time.Millisecond))
	}
}

// until tries every few milliseconds whether a new connection is answered, and returns when.
func until(t *testing.T, limit time.Duration, f peer.Flow, from *source) time.Duration {
	t.Helper()
	began := time.Now()
	answered := make(chan time.Duration, 1)
	for time.Since(began) < limit {
		go func() {
			if r, err := from.space.peer.Dial(f); err == nil && r.Verdict == peer.OK {
				select {
				case answered <- time.Since(began):
				default:
				}
			}
		}()
		select {
		case d := <-answered:
			return d
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Errorf("no answer within %s", limit)
	return limit
}

func TestShowSwitchKilled(t *testing.T) {
	c := build(t, "nodes n1 n2\npod default/a node=n1\npod default/b node=n2 app=b\napply s.yaml\nsettle\nprobe default/a -> svc/default/web:tcp expect ok\n"+service)
	a := podOf(t, c, "default/a")
	m := c.machine("n1")
	agent := m.agent.cmd.Process.Pid
	if err := c.OVSOp(m, "kill"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := c.OVSOp(m, "start"); err != nil {
		t.Fatal(err)
	}
	until(t, 10*time.Second, peer.Flow{Proto: "tcp", To: netip.MustParseAddr("10.96.0.99"), Port: 80, Token: "k"}, a)
	took := time.Since(began)
	t.Logf("ovs-vswitchd was killed: a new connection through a Service %s after it was started", took.Round(time.Millisecond))
	if took > 2*time.Second {
		t.Errorf("want new connections within 2 s, got %s", took)
	}
	if now := m.agent.cmd.Process.Pid; now != agent || !m.agentRuns() {
		t.Errorf("the agent was started anew: %d, before %d", now, agent)
	}
}

const egress = `
-- e.yaml --
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: pool}
spec:
  ipRanges: [{start: 172.18.0.50, end: 172.18.0.59}]
  nodeSelector: {matchLabels: {egress: "yes"}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: web}
spec:
  appliedTo: {podSelector: {matchLabels: {app: web}}}
  externalIPPool: pool
`

// TestShowEgressFailover cuts the link of the node that holds the address: connections to the outside are there
// again half a second after the other node knows, and that one says on the wire that it has the address.
func TestShowEgressFailover(t *testing.T) {
	c := build(t, "option memberTimeout=5s\nnodes n1 n2 n3\nlabel node/n2 egress=yes\nlabel node/n3 egress=yes\nexternal ext\npod default/a node=n1 app=web\napply e.yaml\nsettle\n"+
		"probe default/a -> ext expect ok source=172.18.0.50\n"+egress)
	eip := netip.MustParseAddr("172.18.0.50")
	old := c.Holders(eip)[0]
	next := map[string]string{"n2": "n3", "n3": "n2"}[old]
	var announced atomic.Bool
	c.fabric.listen(func(from string, frame []byte) {
		if p, _, err := packet.Unmarshal(frame); err == nil && from == next && p.EthType == packet.EthARP && p.ARPSPA == eip && p.ARPTPA == eip {
			announced.Store(true)
		}
	})
	a, ext := podOf(t, c, "default/a"), c.external("ext")
	if err := c.fabric.setUp(old, false); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	detected := make(chan time.Duration, 1)
	go func() {
		for time.Since(cut) < 20*time.Second {
			var r shell.Report
			if err := c.machine(next).ask("/status", &r); err == nil && !slices.Contains(r.Alive, old) {
				detected <- time.Since(cut)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		detected <- 20 * time.Second
	}()
	back := until(t, 20*time.Second, peer.Flow{Proto: "tcp", To: ext.Addr(false), Port: defaultPort, Token: "f"}, a)
	knew := <-detected
	t.Logf("link of %s cut: %s knew after %s, a new connection from the Pod to the outside was answered after %s", old, next, knew.Round(time.Millisecond), back.Round(time.Millisecond))
	if knew > 6*time.Second || back > knew+500*time.Millisecond {
		t.Errorf("want it to be known within memberTimeout (5 s), and an answer within 0.5 s after that")
	}
	if !announced.Load() {
		t.Error("nobody announced the address on the wire")
	}
}

// Numbers of the test of how a Service spreads: classes of its endpoints, and connections for each class, so many
// that chance alone stays within 20 % (four standard deviations).
const (
	classes  = 8
	perClass = 400
	// maxLost is what a burst of eight clients may lose in full socket buffers.
	maxLost = classes * perClass / 200
)

func TestShowSpread(t *testing.T) {
	c := build(t, "nodes n1 n2\npod default/a node=n1\napply s.yaml\nsettle\n"+strings.Replace(service, "  selector: {app: b}\n", "", 1))
	a := podOf(t, c, "default/a")
	for _, count := range []int{257, 1000, 5000} {
		if err := c.SetEndpoints("default", "web", count, c.Nodes()); err != nil {
			t.Fatal(err)
		}
		if err := c.Settle(time.Minute); err != nil {
			t.Fatal(err)
		}
		for _, proto := range []string{"tcp", "udp"} {
			spread(t, a, proto, count)
		}
	}
}

func spread(t *testing.T, a *source, proto string, count int) {
	t.Helper()
	var mu sync.Mutex
	got := [classes]int{}
	lost := 0
	var all sync.WaitGroup
	work := make(chan int)
	for range 8 {
		all.Go(func() {
			for i := range work {
				r, err := a.space.peer.Dial(peer.Flow{Proto: proto, To: netip.MustParseAddr("10.96.0.99"), Port: 80, Token: fmt.Sprint(i)})
				mu.Lock()
				if err != nil || r.Verdict != peer.OK {
					lost++
				} else {
					b := r.To.As4()
					got[(int(b[2])<<8|int(b[3]))%classes]++
				}
				mu.Unlock()
			}
		})
	}
	for i := range classes * perClass {
		work <- i
	}
	close(work)
	all.Wait()
	least, most := slices.Min(got[:]), slices.Max(got[:])
	t.Logf("%d endpoints, %s: of %d connections %d to %d for each eighth of the endpoints, %d lost", count, proto, classes*perClass, least, most, lost)
	if lost > maxLost || float64(least) < 0.8*perClass || float64(most) > 1.2*perClass {
		t.Errorf("%d endpoints, %s: want each within 20 %% of %d and at most %d lost: %v, %d lost", count, proto, perClass, maxLost, got, lost)
	}
}

// Every invariant is seen to fail here: something is broken by hand, behind the back of the agent and of the checks.
func TestShowInvariantsFail(t *testing.T) {
	c := build(t, "nodes n1 n2\nexternal ext\nlabel node/n2 egress=yes\npod default/a node=n1 app=web\npod default/plain node=n1\npod default/b node=n2 app=b\n"+
		"apply s.yaml\napply e.yaml\nsettle\nprobe default/a -> ext expect ok source=172.18.0.50\nprobe default/a -> svc/default/web:tcp expect ok\n"+service+egress)
	i := invariants{c}
	run := func(node, command string) {
		t.Helper()
		if _, err := c.machine(node).exec(command); err != nil {
			t.Fatal(err)
		}
	}
	probe := func(from scenarios.Source, to netip.Addr, port uint16) {
		t.Helper()
		if _, err := c.Probe(scenarios.Flow{From: from, To: to, Port: port, Proto: packet.ProtoTCP}); err != nil {
			t.Fatal(err)
		}
	}
	ext := c.external("ext").Addr(false)
	none := func(when string) {
		t.Helper()
		if got := i.AfterSettle(); len(got) > 0 {
			t.Errorf("%s: %v", when, got)
		}
	}
	none("before anything is broken")
	for _, tc := range []struct {
		id               int
		what, node, with string
		do               func()
		check            func() []check.Result
		undo             string
	}{
		{
			id: 1, what: "a flow is deleted", node: "n1", with: "an audit wrote",
			do: func() { run("n1", "ovs-ofctl del-flows "+bridge+" table=41") },
		},
		{
			id: 1, what: "a flow is deleted, and the agent starts anew", with: "a restart wrote",
			do: func() {
				for _, m := range c.machines {
					run(m.name, "ovs-ofctl del-flows "+bridge+" table=41")
				}
			},
			check: i.restarted,
		},
		{
			id: 2, what: "a flow of ours names a port that is not there", node: "n1", with: "port 77: flow cookie=0x100000000000007",
			do: func() {
				run("n1", "ovs-ofctl add-flow "+bridge+" cookie=0x0100000000000007,table=70,priority=9,in_port=77,actions=drop")
			},
		},
		{
			id: 2, what: "nobody wants a flow of ours", node: "n2", with: "nobody wants:\n  flow cookie=0x100000000000008",
			do: func() {
				run("n2", "ovs-ofctl add-flow "+bridge+" cookie=0x0100000000000008,table=70,priority=9,actions=drop")
			},
		},
		{
			id: 2, what: "nobody wants an ipset of ours", node: "n1", with: "ipset create TOWTANK-LOST",
			do: func() { run("n1", "ipset create TOWTANK-LOST hash:ip") }, check: func() []check.Result { return c.machine("n1").owned(true) }, undo: "ipset destroy TOWTANK-LOST",
		},
		{
			id: 2, what: "a route of others is new", node: "n1", with: "new:  route 203.0.113.0/24 dev lo",
			do: func() { run("n1", "ip route add 203.0.113.0/24 dev lo") }, check: func() []check.Result { return c.machine("n1").owned(true) }, undo: "ip route del 203.0.113.0/24",
		},
		{
			id: 2, what: "a flow of others is new", node: "n1", with: "new:  flow cookie=0x5",
			do:    func() { run("n1", "ovs-ofctl add-flow "+bridge+" cookie=5,table=200,priority=9,actions=drop") },
			check: func() []check.Result { return c.machine("n1").owned(true) }, undo: "ovs-ofctl del-flows " + bridge + " cookie=5/-1",
		},
		{
			id: 3, what: "the Egress IP is on a second node", with: "172.18.0.50 is on n1 and n2",
			do: func() { run("n1", "ip addr add 172.18.0.50/32 dev eth0") }, undo: "ip addr del 172.18.0.50/32 dev eth0",
		},
		{
			id: 4, what: "a Pod leaves with another address than its Egress'", node: "n2", with: "a new connection of Pod default/a to " + ext.String() + " has source 172.18.0.77",
			do: func() {
				run("n2", "ip addr add 172.18.0.77/32 dev eth0 && iptables -t nat -I POSTROUTING -o eth0 -j SNAT --to-source 172.18.0.77")
				probe(podOf(t, c, "default/a"), ext, defaultPort)
			},
			undo: "iptables -t nat -D POSTROUTING -o eth0 -j SNAT --to-source 172.18.0.77; ip addr del 172.18.0.77/32 dev eth0",
		},
		{
			id: 4, what: "a Pod's own address leaves its node", node: "n1", with: "an address of a Pod network leaves the node outside the tunnel",
			do: func() {
				run("n1", "iptables -t nat -I POSTROUTING -o eth0 -j ACCEPT")
				probe(podOf(t, c, "default/plain"), ext, defaultPort)
			},
			undo: "iptables -t nat -D POSTROUTING -o eth0 -j ACCEPT",
		},
		{
			id: 4, what: "a node sends with an address that it does not have", node: "n1", with: "the node does not have the source address",
			do: func() {
				run("n1", "iptables -t nat -I POSTROUTING -o eth0 -j SNAT --to-source 172.18.0.78")
				probe(c.NodeSource(c.machine("n1")), ext, defaultPort)
			},
			undo: "iptables -t nat -D POSTROUTING -o eth0 -j SNAT --to-source 172.18.0.78",
		},
		{
			id: 4, what: "a node sends with an address between bridge and host", node: "n1", with: "the source exists between bridge and host only",
			do: func() {
				run("n1", "iptables -t nat -I POSTROUTING -o eth0 -j SNAT --to-source 169.254.0.9")
				probe(c.NodeSource(c.machine("n1")), ext, defaultPort)
			},
			undo: "iptables -t nat -D POSTROUTING -o eth0 -j SNAT --to-source 169.254.0.9",
		},
		{
			id: 4, what: "a tunnel packet has another source", node: "n1", with: "a tunnel packet has a source that the node does not have",
			do: func() {
				p := &packet.Packet{EthType: packet.EthIPv4, EthDst: packet.Broadcast, Src: ext, Dst: c.machine("n2").Transport(false), Proto: packet.ProtoUDP, TTL: 64, SrcPort: 999, DstPort: genevePort}
				frame, err := packet.MarshalUDP(p, make([]byte, 60))
				if err == nil {
					err = c.machine("n1").space.peer.Transmit(physical, frame)
				}
				if err == nil {
					err = c.fabric.sync()
				}
				if err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			id: 5, what: "a Service is silent", node: "n1", with: "default/a -> 10.96.0.99:80/tcp: silence",
			do: func() {
				run("n1", "ovs-ofctl add-flow "+bridge+" cookie=5,table=10,priority=65000,tcp,nw_dst=10.96.0.99,actions=drop")
				probe(podOf(t, c, "default/a"), netip.MustParseAddr("10.96.0.99"), 80)
			},
			undo: "ovs-ofctl del-flows " + bridge + " cookie=5/-1",
		},
		{
			id: 5, what: "the endpoint's address is not put in, and no probe says so", node: "n1", with: "default/plain -> 10.96.0.99:80/tcp: silence",
			do: func() { run("n1", "ovs-ofctl del-flows "+bridge+" table=35,tcp") }, check: c.tryServices,
		},
	} {
		tc.do()
		if tc.check == nil {
			tc.check = i.AfterSettle
		}
		got := tc.check()
		if !slices.ContainsFunc(got, func(r check.Result) bool {
			return r.ID == tc.id && (tc.node == "" || r.Node == tc.node) && strings.Contains(r.Detail, tc.with)
		}) {
			t.Errorf("%s: invariant %d does not fail with %q: %v", tc.what, tc.id, tc.with, got)
		}
		if tc.undo != "" {
			node := tc.node
			if node == "" {
				node = "n1"
			}
			run(node, tc.undo)
		}
		_ = i.AfterSettle() // audits repair the rest
		none(tc.what + ", undone")
	}
}
