// Package kube is the simulated Kubernetes: an API server with defaulting, validation, allocation,
// resource versions and conflicts; the controllers that turn Services and workloads into
// EndpointSlices and Pods; and watches that can be held, closed and relisted. It is plain state:
// no goroutine, no clock of its own, no randomness, and the same calls give the same objects, names
// and versions.
//
//	     Apply, Patch, Delete, Create, Update, UpdateStatus        client-go (package clients)
//	                            │                                         │
//	decode.go → defaults, validation (service.go, egress.go, …) → store.go: objects by kind and key
//	                                                                │            │
//	                       index.go: labels, nodes, owners ← ───────┘            └──→ stream.go: one queue
//	                                  │ dirty                                        for each client and kind
//	             controllers: workload.go, scheduler.go, slices.go, mirror.go
//
// Every call runs the controllers until nothing is left to do before it returns; what they write
// reaches the streams like any other write. Objects are immutable once stored: every reader shares
// them and nobody changes them. A Cluster is for one goroutine.
package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Config is the world around the cluster.
type Config struct {
	// Now is the world's clock.
	Now func() time.Time
	// IPv4 and IPv6 are the families the cluster has; with both, IPv4 is the first. At least one.
	IPv4, IPv6 bool
	// ServiceCIDRs are the networks of cluster IPs, at most one of each family; empty: 10.96.0.0/16
	// and fd00:96::/112.
	ServiceCIDRs []netip.Prefix
	// Wake, if set, is called when an event was queued on a stream.
	Wake func()
}

// Cluster is the API server and its controllers.
type Cluster struct {
	cfg    Config
	tables map[Kind]*table

	version uint64 // resource version of the last write
	lastUID uint64

	clusterIPs map[bool]*addressPool // by IPv6
	nodePorts  *portPool
	// givenIP has the Egresses whose egressIP was in the last manifest applied, by name.
	givenIP map[string]bool

	index    index
	dirty    dirty
	watchers map[Kind][]*Stream
	// observers see every write.
	observers []func(Event)
	gates     map[string]map[Kind]*gate // by client
	events    []RecordedEvent
	eventAt   map[recordedKey]int
	queued    bool // a stream has a new event since the last Wake
}

// New returns a cluster that has the Namespaces default and kube-system and nothing else.
func New(cfg Config) (*Cluster, error) {
	if !cfg.IPv4 && !cfg.IPv6 {
		return nil, fmt.Errorf("cluster: neither IPv4 nor IPv6")
	}
	if cfg.Now == nil {
		return nil, fmt.Errorf("cluster: no clock")
	}
	if len(cfg.ServiceCIDRs) == 0 {
		cfg.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
	}
	c := &Cluster{
		cfg: cfg, tables: make(map[Kind]*table), clusterIPs: make(map[bool]*addressPool),
		nodePorts: newPortPool(30000, 32767), givenIP: make(map[string]bool),
		index: newIndex(), dirty: newDirty(), watchers: make(map[Kind][]*Stream),
		gates: make(map[string]map[Kind]*gate), eventAt: make(map[recordedKey]int),
	}
	for _, k := range kinds {
		c.tables[k.kind] = &table{info: k, objects: make(map[string]object)}
	}
	for _, v6 := range []bool{false, true} {
		if v6 && !cfg.IPv6 || !v6 && !cfg.IPv4 {
			continue
		}
		i := slices.IndexFunc(cfg.ServiceCIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() == v6 })
		if i < 0 {
			return nil, fmt.Errorf("cluster: no Service network of family %s in %v", familyName(v6), cfg.ServiceCIDRs)
		}
		pool, err := newAddressPool(cfg.ServiceCIDRs[i])
		if err != nil {
			return nil, err
		}
		c.clusterIPs[v6] = pool
	}
	for _, ns := range []string{"default", "kube-system"} {
		if err := c.CreateNamespace(ns, nil); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func familyName(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

// Version returns the resource version of the last write; versions ascend over all kinds.
func (c *Cluster) Version() uint64 { return c.version }

// AddObserver has f called for every write, in order, before any stream delivers it. f must not call
// the Cluster.
func (c *Cluster) AddObserver(f func(Event)) { c.observers = append(c.observers, f) }

// DeletedSince returns the deletions of a kind after a version, in order; complete is false if older
// ones of them are forgotten.
func (c *Cluster) DeletedSince(kind Kind, version uint64) (deleted []Event, complete bool) {
	t, err := c.table(kind)
	if err != nil {
		return nil, true
	}
	for _, d := range t.deleted {
		if d.version > version {
			deleted = append(deleted, Event{Type: Deleted, Kind: kind, Key: t.key(d.object), Object: d.object})
		}
	}
	return deleted, version >= t.forgotten
}

// Get returns an object, which must not be changed. The error is a NotFound StatusError.
func (c *Cluster) Get(kind Kind, namespace, name string) (runtime.Object, error) {
	t, err := c.table(kind)
	if err != nil {
		return nil, err
	}
	o, ok := t.objects[keyOf(t.info, namespace, name)]
	if !ok {
		return nil, t.info.notFound(name)
	}
	return o, nil
}

// List returns the objects of a kind sorted by namespace and name; they must not be changed.
func (c *Cluster) List(kind Kind) []runtime.Object {
	t, err := c.table(kind)
	if err != nil {
		return nil
	}
	out := make([]runtime.Object, 0, len(t.objects))
	for _, k := range t.keys() {
		out = append(out, t.objects[k])
	}
	return out
}

// done ends every call that writes: it runs the controllers and tells the world.
func (c *Cluster) done() {
	c.runControllers()
	if c.queued && c.cfg.Wake != nil {
		c.queued = false
		c.cfg.Wake()
	}
}
