//go:build linux

// Package linux is datapath.Host on the kernel of a network namespace: links, addresses, routes, rules
// and neighbours over rtnetlink, iptables and ipsets by atomic restore, and what else Package host has.
//
//	caller's loop ──Apply, Dump, …──▶ queue ──▶ worker (one OS thread, inside the namespace)
//	      ▲                                       ├── rtnetlink, conntrack, AF_PACKET
//	      └────────────── Post ◀──────────────────┴── iptables-restore, ipset, nft, ethtool
//
// It deletes only what carries our mark (see package host). What the kernel cannot carry a mark on, the
// former values of sysctls and the MACs that were set, is in Config.StateFile until the next boot.
package linux

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"towtank/datapath"
	"towtank/datapath/host"
)

// Config says which node a Host is and who hears of it.
type Config struct {
	// Netns is the path or the name (below /run/netns) of the network namespace; "" is the one of the process.
	Netns string
	// StateFile remembers what the kernel cannot, until the next boot: put it below /run. Required.
	StateFile string
	// Post runs a function in the caller's loop. Required.
	Post func(func())
	// Address and Link hear of changes, by Post; nil: nobody does.
	Address func(datapath.AddressEvent)
	Link    func(datapath.LinkEvent)
	// Foreign hears, from the worker, of ipsets and members that have a name of ours and are not what we make: they are
	// left alone, see applySets. Each text once. nil: nobody does.
	Foreign func(what string)
}

// commandTimeout ends a program that hangs.
const commandTimeout = 30 * time.Second

// Host implements datapath.Host.
type Host struct {
	cfg    Config
	ns     netns.NsHandle
	state  *state
	health map[uint16]*healthServer // worker only
	told   map[string]bool          // what Foreign heard; worker only
	quit   chan struct{}
	ended  chan struct{}

	mu   sync.Mutex
	wake *sync.Cond
	work []func()
	stop bool
}

// Open starts the worker in the namespace.
func Open(cfg Config) (*Host, error) {
	ns, err := openNetns(cfg.Netns)
	if err != nil {
		return nil, err
	}
	st, err := openState(cfg.StateFile)
	if err != nil {
		_ = ns.Close()
		return nil, err
	}
	h := &Host{cfg: cfg, ns: ns, state: st, health: map[uint16]*healthServer{}, told: map[string]bool{}, quit: make(chan struct{}), ended: make(chan struct{})}
	h.wake = sync.NewCond(&h.mu)
	entered := make(chan error)
	go h.run(entered)
	if err := <-entered; err != nil {
		_ = ns.Close()
		return nil, err
	}
	if err := h.watch(); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// openNetns opens a namespace by its path or its name, "" for the one of the process.
func openNetns(name string) (netns.NsHandle, error) {
	var h netns.NsHandle
	var err error
	switch {
	case name == "":
		h, err = netns.Get()
	case strings.Contains(name, "/"):
		h, err = netns.GetFromPath(name)
	default:
		h, err = netns.GetFromName(name)
	}
	if err != nil {
		return h, fmt.Errorf("network namespace %s: %w", name, err)
	}
	return h, nil
}

// Close ends the worker after what it was given, and the health listeners.
func (h *Host) Close() {
	h.mu.Lock()
	if h.stop {
		h.mu.Unlock()
		return
	}
	h.stop = true
	h.mu.Unlock()
	h.wake.Signal()
	<-h.ended
	close(h.quit)
	for _, s := range h.health {
		s.close()
	}
	_ = h.ns.Close()
}

// run is the worker. Its thread stays in the namespace, so it ends with the goroutine.
func (h *Host) run(entered chan<- error) {
	defer close(h.ended)
	runtime.LockOSThread()
	if err := netns.Set(h.ns); err != nil {
		entered <- fmt.Errorf("enter network namespace %s: %w", h.cfg.Netns, err)
		return
	}
	if err := deleteUnfinished(); err != nil {
		entered <- err
		return
	}
	entered <- nil
	for {
		h.mu.Lock()
		for len(h.work) == 0 && !h.stop {
			h.wake.Wait()
		}
		if len(h.work) == 0 {
			h.mu.Unlock()
			return
		}
		f := h.work[0]
		h.work = h.work[1:]
		h.mu.Unlock()
		f()
	}
}

// do gives the worker something to do. After Close it does nothing.
func (h *Host) do(f func()) {
	h.mu.Lock()
	if !h.stop {
		h.work = append(h.work, f)
	}
	h.mu.Unlock()
	h.wake.Signal()
}

// within runs f on this thread in another namespace and comes back.
func (h *Host) within(name string, f func() error) error {
	if name == "" {
		return f()
	}
	other, err := openNetns(name)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close() }()
	if err := netns.Set(other); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", name, err)
	}
	err = f()
	if back := netns.Set(h.ns); back != nil {
		return fmt.Errorf("leave network namespace %s: %w", name, back)
	}
	return err
}

// command runs a program in the namespace of the calling thread, which must be locked.
func command(stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(errs.String()); text != "" {
			return "", fmt.Errorf("%s: %s", name, strings.Join(strings.Fields(text), " "))
		}
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return out.String(), nil
}

// Apply implements datapath.Host. All iptables ops of a family and table take effect together, at the
// first of them; so do all members of ipsets in a row. One that is refused does not hold up the others.
func (h *Host) Apply(_ datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	h.do(func() {
		results := make([]datapath.OpResult, len(ops))
		for i, err := range h.apply(ops) {
			if err != nil {
				results[i] = datapath.OpResult{Outcome: datapath.Refused, Err: fmt.Errorf("%s: %w", ops[i], err)}
			}
		}
		h.cfg.Post(func() { done(results) })
	})
}

func (h *Host) apply(ops []datapath.Op) []error {
	errs := make([]error, len(ops))
	var tables []*tableBatch
	for i, op := range ops {
		if t, ok := object(op).(host.IPTables); ok {
			tables = batch(tables, t, i)
		}
	}
	tablesDone, owners := false, routeOwners{}
	for i := 0; i < len(ops); i++ {
		switch object(ops[i]).(type) {
		case nil:
			errs[i] = fmt.Errorf("an op without object")
		case host.IPTables:
			if !tablesDone {
				tablesDone = true
				for _, b := range tables {
					b.apply(ops, errs)
				}
			}
		case host.IPSet, host.IPSetEntry:
			j := i
			for j < len(ops) && isSet(object(ops[j])) {
				j++
			}
			applySets(ops[i:j], errs[i:j])
			i = j - 1
		case host.Route:
			j := i
			for j < len(ops) && object(ops[j]) != nil && object(ops[j]).Kind() == datapath.KindRoute {
				j++
			}
			h.applyRoutes(ops[i:j], errs[i:j], owners)
			i = j - 1
		default:
			errs[i] = h.one(ops[i], owners)
		}
	}
	return errs
}

// applyRoutes applies routes in a row. Those with a next hop come last: the kernel refuses a next hop that no route
// leads to.
func (h *Host) applyRoutes(ops []datapath.Op, errs []error, owners routeOwners) {
	for _, last := range []bool{false, true} {
		for i, op := range ops {
			r, isPut := op.New.(host.Route)
			if (isPut && r.Via.IsValid()) == last {
				errs[i] = h.one(op, owners)
			}
		}
	}
}

func object(op datapath.Op) datapath.Object {
	if op.New != nil {
		return op.New
	}
	return op.Old
}

// one applies an op that stands for itself.
func (h *Host) one(op datapath.Op, owners routeOwners) error {
	del := op.Delete()
	switch o := object(op).(type) {
	case host.Link:
		if del {
			return h.deleteLink(o)
		}
		return h.putLink(o)
	case host.Address:
		if del {
			return deleteAddress(o)
		}
		return putAddress(o)
	case host.Route:
		if del {
			return deleteRoute(o)
		}
		return putRoute(o, owners)
	case host.Rule:
		if del {
			return deleteRule(o)
		}
		return putRule(o)
	case host.Neighbour:
		if del {
			return deleteNeighbour(o)
		}
		return putNeighbour(o)
	case host.Sysctl:
		if del {
			return h.restoreSysctl(o)
		}
		return h.putSysctl(o)
	case host.Health:
		if del {
			h.deleteHealth(o.Port)
			return nil
		}
		return h.putHealth(o)
	}
	return fmt.Errorf("kind %s is not a host object", object(op).Kind())
}

// Dump implements datapath.Host.
func (h *Host) Dump(done func([]datapath.Object, error)) {
	h.do(func() {
		objects, err := h.dump()
		h.cfg.Post(func() { done(objects, err) })
	})
}

func (h *Host) dump() ([]datapath.Object, error) {
	var out []datapath.Object
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	for _, part := range []func(names map[int]string) ([]datapath.Object, error){
		func(names map[int]string) ([]datapath.Object, error) { return h.dumpLinks(links, names) },
		dumpAddresses, dumpNeighbours, dumpRoutes, dumpRules, dumpTables, h.dumpSets, h.dumpSysctls, h.dumpHealth,
	} {
		o, err := part(names)
		if err != nil {
			return nil, err
		}
		out = append(out, o...)
	}
	return out, nil
}
