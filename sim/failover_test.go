package sim

import (
	"fmt"
	"testing"
	"time"
)

// A node that is busy wiring 100 Pods takes an Egress IP over within 50 ms of virtual time: Egress does
// not wait for links.
func TestFailoverDuringHundredADDs(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		w := newWorld(t, seed, "n1", "n2", "n3")
		for _, n := range []string{"n2", "n3"} {
			if err := w.Kube.ChangeLabels("Node", "", n, map[string]string{"egress": "yes"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		pod(t, w, "default", "client", "n1", map[string]string{"app": "web"})
		if _, err := w.Kube.Apply([]byte(egressYAML), "egress.yaml"); err != nil {
			t.Fatal(err)
		}
		settle(t, w)
		ip := mustAddr("172.18.0.50")
		owner, heir := w.Node("n2"), w.Node("n3")
		if heir.ns.HasAddress(ip) {
			owner, heir = heir, owner
		}
		w.NodeDown(owner, false)
		// The owner is missed after 15 s; until just before that nothing happens.
		if err := w.Advance(w.opts.MemberTimeout - time.Millisecond); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			pod(t, w, "default", fmt.Sprintf("p%d", i), heir.name, map[string]string{"app": "db"})
		}
		if err := w.Advance(time.Millisecond); err != nil {
			t.Fatal(err)
		}
		missed := w.Now()
		realised := func() bool { return heir.ns.HasAddress(ip) && heir.announcedSince(missed, ip.String()) }
		if err := w.Await(realised, time.Second); err != nil {
			t.Fatalf("seed %d: not taken over: %v", seed, err)
		}
		if took := w.Now() - missed; took > 50*time.Millisecond {
			t.Errorf("seed %d: taken over after %s, want at most 50ms", seed, took)
		} else {
			t.Logf("seed %d: taken over after %s with %d of 100 Pods wired", seed, took, heir.ipam.count())
		}
	}
}

// announcedSince reports whether the node announced an address since a time: the last effect of a
// takeover, after rules and flows.
func (n *Node) announcedSince(since time.Duration, ip string) bool {
	for _, e := range n.journal {
		if e.Class == EffectAnnounce && e.At.Sub(epoch) >= since && len(e.Text) > len(ip) && e.Text[2:2+len(ip)] == ip {
			return true
		}
	}
	return false
}
