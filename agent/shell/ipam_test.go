package shell_test

import (
	"context"
	"net/netip"
	"strconv"
	"testing"

	"towtank/agent/edge"
	"towtank/agent/shell"
)

// TestCollectionKeepsAddressesOfPods collects with nothing but an address to keep, as an agent does that finds no
// sandbox on its bridge but running Pods in the API: that address is not given again, the others are.
func TestCollectionKeepsAddressesOfPods(t *testing.T) {
	q := shell.NewQueue()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go q.Run(ctx)
	for cidr, free := range map[string]int{"10.10.1.0/29": 5, "fd00:10:1::/125": 6} {
		t.Run(cidr, func(t *testing.T) {
			collect(t, shell.NewIPAM(q, t.TempDir(), []netip.Prefix{netip.MustParsePrefix(cidr)}), free)
		})
	}
}

// collect does so with an IPAM of that many addresses.
func collect(t *testing.T, ipam *shell.IPAM, free int) {
	add := func(id string) netip.Prefix {
		t.Helper()
		type answer struct {
			got []netip.Prefix
			err error
		}
		c := make(chan answer, 1)
		ipam.Add(edge.Attachment{ContainerID: id, Ifname: "eth0"}, func(got []netip.Prefix, err error) { c <- answer{got, err} })
		a := <-c
		if a.err != nil || len(a.got) != 1 {
			t.Fatalf("ADD %s: %v, %v, want an address", id, a.got, a.err)
		}
		return a.got[0]
	}
	kept, lost := add("kept"), add("lost")
	collected := make(chan error, 1)
	ipam.GC(nil, []netip.Addr{kept.Addr()}, func(err error) { collected <- err })
	if err := <-collected; err != nil {
		t.Fatal(err)
	}
	given := map[netip.Prefix]bool{}
	for i := range free - 1 {
		given[add(strconv.Itoa(i))] = true
	}
	if given[kept] {
		t.Errorf("%s is given twice", kept)
	}
	if !given[lost] {
		t.Errorf("%s was not collected", lost)
	}
}
