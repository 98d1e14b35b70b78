//go:build linux

package linux_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"

	"towtank/datapath"
)

// Entries are selected by what a tuple names, and by nothing else: by the source alone of a Pod whose address outside is
// another one now, by the frontend alone of a Service port that went. Those beside it stay.
func TestFlushConntrack(t *testing.T) {
	if _, err := exec.LookPath("conntrack"); err != nil && os.Getenv("TOWTANK_ROOT") != "1" {
		t.Skip("needs conntrack") // a developer's machine; CI sets TOWTANK_ROOT=1, goes on, and fails where conntrack is called
	}
	n := start(t)
	const udp, icmp, icmp6 = 17, 1, 58
	source := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	to := netip.MustParseAddrPort
	entries := [][]string{
		{"-p", "udp", "-s", "10.10.1.2", "-d", "172.18.0.101", "--sport", "40000", "--dport", "8080", "-r", "172.18.0.101", "-q", "172.18.0.50", "--reply-port-src", "8080", "--reply-port-dst", "40000"},
		{"-p", "udp", "-s", "10.10.1.2", "-d", "172.18.0.102", "--sport", "40000", "--dport", "53", "-r", "172.18.0.102", "-q", "172.18.0.11", "--reply-port-src", "53", "--reply-port-dst", "40000"},
		{"-p", "udp", "-s", "10.10.1.3", "-d", "172.18.0.101", "--sport", "40000", "--dport", "8080", "-r", "172.18.0.101", "-q", "172.18.0.11", "--reply-port-src", "8080", "--reply-port-dst", "40000"},
		{"-p", "icmp", "-s", "10.10.1.2", "-d", "172.18.0.101", "--icmp-type", "8", "--icmp-code", "0", "--icmp-id", "7"},
		{"-p", "tcp", "-s", "10.10.1.2", "-d", "172.18.0.101", "--sport", "40000", "--dport", "8080", "-r", "172.18.0.101", "-q", "172.18.0.50", "--reply-port-src", "8080", "--reply-port-dst", "40000", "--state", "ESTABLISHED"},
		{"-p", "udp", "-s", "fd00:10:1::2", "-d", "fd00:18::101", "--sport", "40000", "--dport", "8080", "-r", "fd00:18::101", "-q", "fd00:18::50", "--reply-port-src", "8080", "--reply-port-dst", "40000"},
		{"-p", "icmpv6", "-s", "fd00:10:1::2", "-d", "fd00:18::101", "--icmpv6-type", "128", "--icmpv6-code", "0", "--icmpv6-id", "7"},
	}
	for _, c := range []struct {
		name string
		gone []int // of entries
		by   []datapath.Tuple
	}{
		{"source", []int{0, 1}, []datapath.Tuple{{Proto: udp, Source: source("10.10.1.2")}}},
		{"source, ICMP", []int{3}, []datapath.Tuple{{Proto: icmp, Source: source("10.10.1.2")}}},
		{"source of both families", []int{0, 1, 5}, []datapath.Tuple{{Proto: udp, Source: source("10.10.1.2")}, {Proto: udp, Source: source("fd00:10:1::2")}}},
		{"source, ICMPv6", []int{6}, []datapath.Tuple{{Proto: icmp6, Source: source("fd00:10:1::2")}}},
		{"frontend", []int{0, 2}, []datapath.Tuple{{Proto: udp, Frontend: to("172.18.0.101:8080")}}},
		{"frontend of any port", []int{0, 2}, []datapath.Tuple{{Proto: udp, Frontend: to("172.18.0.101:0")}}},
		{"frontend and source", []int{0}, []datapath.Tuple{{Proto: udp, Frontend: to("172.18.0.101:8080"), Source: source("10.10.1.2")}}},
		{"frontend and backend", []int{1}, []datapath.Tuple{{Proto: udp, Frontend: to("172.18.0.102:53"), Backend: to("172.18.0.102:53")}}},
		{"another backend", nil, []datapath.Tuple{{Proto: udp, Frontend: to("172.18.0.102:53"), Backend: to("172.18.0.103:53")}}},
		{"another source", nil, []datapath.Tuple{{Proto: udp, Source: source("10.10.1.9")}}},
		{"another zone", nil, []datapath.Tuple{{Zone: 7, Proto: udp, Source: source("10.10.1.2")}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, f := range []string{"ipv4", "ipv6"} {
				n.run("conntrack", "-F", "-f", f)
			}
			var want []string
			for i, e := range entries {
				n.run(append([]string{"conntrack", "-I", "-t", "100"}, e...)...)
				if !slices.Contains(c.gone, i) {
					want = append(want, fmt.Sprint(e[1], " ", e[3], " ", e[5]))
				}
			}
			if got := n.conntrack(); len(got) != len(entries) {
				t.Fatalf("%d entries, want %d: %v", len(got), len(entries), got)
			}
			done := false
			n.FlushConntrack(c.by, func(err error) {
				if done = true; err != nil {
					t.Error(err)
				}
			})
			n.until("the flush is answered", func() bool { return done })
			slices.Sort(want)
			if got := n.conntrack(); !slices.Equal(got, want) {
				t.Errorf("left are %v, want %v", got, want)
			}
		})
	}
}

// conntrack returns protocol, source and destination of all entries, sorted.
func (n *node) conntrack() []string {
	n.t.Helper()
	var out []string
	done := false
	n.DumpConntrack(func(entries []datapath.ConntrackEntry, err error) {
		if done = true; err != nil {
			n.t.Error(err)
		}
		for _, e := range entries {
			proto := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6"}[e.Proto]
			out = append(out, fmt.Sprint(proto, " ", e.OrigSrc.Addr(), " ", e.OrigDst.Addr()))
		}
	})
	n.until("the dump is answered", func() bool { return done })
	slices.Sort(out)
	return out
}
