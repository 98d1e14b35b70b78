package shell_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
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
