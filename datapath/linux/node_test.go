//go:build linux

package linux_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/datapath/linux"
)

// node is a Host in a network namespace of the test's own, with an uplink eth0 and a gateway gw0.
type node struct {
	*linux.Host
	t     *testing.T
	name  string
	state string
	loop  chan func()
	addrs []datapath.AddressEvent
	links []datapath.LinkEvent

	mu      sync.Mutex
	foreign []string
}

// told returns what was told of as not ours.
func (n *node) told() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.foreign)
}

// need wants root and the tools. With TOWTANK_ROOT=1, as CI sets it, a machine without them fails.
func need(t *testing.T) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	}
	for _, tool := range []string{"iptables-restore", "ip6tables-restore", "ipset", "nft", "ethtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = tool
		}
	}
	switch {
	case missing == "":
	case os.Getenv("TOWTANK_ROOT") == "1":
		t.Fatal("needs " + missing)
	default:
		t.Skip("needs " + missing) // a developer's machine; CI fails above
	}
}

// namespace makes a named network namespace that goes with the test.
func namespace(t *testing.T, name string) string {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread is lost to the namespace that it makes: it is not unlocked
		h, err := netns.NewNamed(name)
		if err == nil {
			err = h.Close()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.DeleteNamed(name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// nodes counts the namespaces of this process: each test has one of its own name.
var nodes atomic.Uint64

func start(t *testing.T) *node {
	t.Helper()
	need(t)
	n := &node{t: t, name: fmt.Sprintf("towtank-test-%d-%d", os.Getpid(), nodes.Add(1)), loop: make(chan func(), 1000)}
	n.state = filepath.Join(t.TempDir(), "state.json")
	namespace(t, n.name)
	n.at(func(h *netlink.Handle) error {
		for _, name := range []string{"eth0", "gw0"} {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = name
			l := netlink.NewVeth(attrs) // a dummy needs a module that not every kernel has
			l.PeerName = name + "-far"
			if err := h.LinkAdd(l); err != nil {
				return err
			}
			for _, side := range []string{name, name + "-far"} {
				attrs.Name = side
				if err := h.LinkSetUp(&netlink.Veth{LinkAttrs: attrs}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	n.open()
	t.Cleanup(func() { n.Close() })
	return n
}

// open starts the agent's side, again after a crash.
func (n *node) open() {
	n.t.Helper()
	h, err := linux.Open(linux.Config{
		Netns: n.name, StateFile: n.state, Post: func(f func()) { n.loop <- f },
		Address: func(e datapath.AddressEvent) { n.addrs = append(n.addrs, e) }, Link: func(e datapath.LinkEvent) { n.links = append(n.links, e) },
		Foreign: func(what string) {
			n.mu.Lock()
			n.foreign = append(n.foreign, what)
			n.mu.Unlock()
		},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.Host = h
}

// at runs f with a handle in the namespace.
func (n *node) at(f func(*netlink.Handle) error) {
	n.t.Helper()
	ns, err := netns.GetFromName(n.name)
	if err != nil {
		n.t.Fatal(err)
	}
	h, err := netlink.NewHandleAt(ns)
	if err == nil {
		err = f(h)
		h.Close()
	}
	if err := ns.Close(); err != nil {
		n.t.Error(err)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// hasVLAN reports whether the kernel can make a VLAN device.
func (n *node) hasVLAN() bool {
	n.t.Helper()
	has := false
	n.at(func(h *netlink.Handle) error {
		parent, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = "probe.20", parent.Attrs().Index
		l := &netlink.Vlan{LinkAttrs: attrs, VlanId: 20}
		if h.LinkAdd(l) == nil {
			has = true
			return h.LinkDel(l)
		}
		return nil
	})
	return has
}

// run runs a program in the namespace and returns what it prints.
func (n *node) run(args ...string) string {
	n.t.Helper()
	out, err := exec.Command("ip", append([]string{"netns", "exec", n.name}, args...)...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (n *node) until(what string, holds func() bool) {
	n.t.Helper()
	end := time.After(20 * time.Second)
	for !holds() {
		select {
		case f := <-n.loop:
			f()
		case <-end:
			n.t.Fatalf("%s: not within 20 s", what)
		}
	}
}

func (n *node) apply(ops ...datapath.Op) []datapath.OpResult {
	n.t.Helper()
	var res []datapath.OpResult
	done := false
	n.Apply(datapath.StageHostAdd, ops, func(r []datapath.OpResult) { res, done = r, true })
	n.until("results", func() bool { return done })
	return res
}

// must applies ops that nothing may refuse.
func (n *node) must(ops ...datapath.Op) {
	n.t.Helper()
	for _, r := range n.apply(ops...) {
		if r.Outcome != datapath.Done {
			n.t.Errorf("%v: %v", r.Outcome, r.Err)
		}
	}
}

func (n *node) dump() []string {
	n.t.Helper()
	var out []string
	done := false
	n.Dump(func(o []datapath.Object, err error) {
		if err != nil {
			n.t.Fatal(err)
		}
		for _, x := range o {
			out = append(out, string(x.Kind())+" "+x.String())
		}
		done = true
	})
	n.until("dump", func() bool { return done })
	slices.Sort(out)
	return out
}

func parse(t *testing.T, kind datapath.Kind, text string) datapath.Object {
	t.Helper()
	o, err := host.Parse(kind, text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func put(o datapath.Object) datapath.Op { return datapath.Op{New: o} }

func del(o datapath.Object) datapath.Op { return datapath.Op{Old: o} }

// corpus returns the host objects that the scenarios ever want.
func corpus(t *testing.T) []datapath.Object {
	t.Helper()
	data, err := os.ReadFile("../../scenarios/testdata/corpus.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []datapath.Object
	seen := map[datapath.Key]bool{}
	for line := range strings.Lines(string(data)) {
		kind, text, ok := strings.Cut(strings.TrimSpace(line), "\t")
		k := datapath.Kind(kind)
		if s := datapath.StageOf(k, false); !ok || s != datapath.StageHostAdd || datapath.Rank(k) == 0 {
			continue
		}
		o := parse(t, k, text)
		if seen[o.Key()] { // another version of one that is there
			continue
		}
		seen[o.Key()] = true
		out = append(out, o)
	}
	if len(out) < 80 {
		t.Fatalf("%d host objects in the corpus: want 80 or more", len(out))
	}
	slices.SortStableFunc(out, func(a, b datapath.Object) int { return order(a) - order(b) })
	return out
}

// order is the rank, with the settings of links behind the links.
func order(o datapath.Object) int {
	if r := datapath.Rank(o.Kind()); r > datapath.Rank(datapath.KindSysctl) {
		return r
	}
	if strings.Contains(o.Key().Name, ".conf.") {
		return datapath.Rank(datapath.KindLink)
	}
	return 0
}
