package shell_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/klog/v2"

	"towtank/agent/edge"
	"towtank/agent/shell"
)

// member starts a member on an address of the loopback; its events come on the channel.
func member(t *testing.T, node, addr string, port uint16) (*shell.Members, <-chan edge.MembersEvent) {
	t.Helper()
	q := shell.NewQueue()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go q.Run(ctx)
	events := make(chan edge.MembersEvent, 100)
	m, err := shell.NewMembers(q, shell.MembersConfig{Node: node, Bind: netip.AddrPortFrom(netip.MustParseAddr(addr), port), Timeout: 2 * time.Second},
		func(ev any) { events <- ev.(edge.MembersEvent) }, klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, events
}

// TestJoinWaitsForPeersThatStart has a peer that refuses connections at first, as one whose agent is replaced at
// the same time does: nobody may be told that this node knows who is alive before it is there.
func TestJoinWaitsForPeersThatStart(t *testing.T) {
	port := freePort(t)
	n1, events := member(t, "n1", "127.0.0.1", port)
	n1.SetPeers(map[string]netip.Addr{"n2": netip.MustParseAddr("127.0.0.2")})
	// The agent of n2 takes this long to start.
	time.AfterFunc(500*time.Millisecond, func() { member(t, "n2", "127.0.0.2", port) })
	timeout := time.After(10 * time.Second)
	for {
		select {
		case e := <-events:
			if e.Joined && !slices.Contains(e.Alive, "n2") {
				t.Fatalf("joined with %v alone, while n2 was starting", e.Alive)
			}
			if e.Joined {
				return
			}
		case <-timeout:
			t.Fatal("it never joined")
		}
	}
}

// TestReplacedMemberIsNotMissed has a member end without a word and come back within the timeout, as the agent of a node
// does in a rolling update: the others never hear that it was gone. One that leaves is missed at once.
func TestReplacedMemberIsNotMissed(t *testing.T) {
	port := freePort(t)
	n1, events := member(t, "n1", "127.0.0.1", port)
	n2, _ := member(t, "n2", "127.0.0.2", port)
	peers := map[string]netip.Addr{"n1": netip.MustParseAddr("127.0.0.1"), "n2": netip.MustParseAddr("127.0.0.2")}
	n1.SetPeers(peers)
	n2.SetPeers(peers)
	alive := func(want bool) func() bool {
		return func() bool {
			select {
			case e := <-events:
				return slices.Contains(e.Alive, "n2") == want
			default:
				return false
			}
		}
	}
	g := gomega.NewWithT(t)
	g.Eventually(alive(true), "10s", "5ms").Should(gomega.BeTrue(), "n1 hears of n2")
	n2.Close()
	n2, _ = member(t, "n2", "127.0.0.2", port)
	n2.SetPeers(peers)
	g.Consistently(alive(false), "3s", "5ms").Should(gomega.BeFalse(), "n1 hears that n2 is gone, though it was replaced")
	n2.Leave()
	g.Eventually(alive(false), "1s", "5ms").Should(gomega.BeTrue(), "n1 hears that n2 left")
}

// freePort returns a port of the loopback that nobody uses.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}
