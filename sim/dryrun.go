package sim

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"towtank/agent"
	"towtank/agent/edge"
	"towtank/agent/tables"
	"towtank/datapath"
)

// dry is an agent that is started on a copy of what another one knows, with seams that change nothing:
// what it would write is what a restart would write.
type dry struct {
	n     *Node
	queue []func()
	ops   []datapath.Op
	// objs are what is on the node: they answer the dumps.
	sw, host []datapath.Object
}

// DryRestart returns the ops that a restart of the node's agent would apply, if it heard of the same
// objects and members.
func (n *Node) DryRestart() ([]datapath.Op, error) {
	p := n.agent
	if p == nil || p.loop == nil {
		return nil, nil
	}
	d := &dry{n: n, sw: n.sw.Dump(), host: n.ns.Dump()}
	loop, err := agent.New(n.config(), agent.Seams{
		Switch: d, Host: dryHost{d}, Cluster: dryCluster{}, IPAM: dryIPAM{}, Members: dryMembers{}, Clock: dryClock{n.world.queue.Now},
		Post: func(f func()) { d.queue = append(d.queue, f) }, Log: klog.New(nopSink{}),
	})
	if err != nil {
		return nil, err
	}
	loop.Start()
	n.factsTo(loop.Handle)
	feed(p.loop.Env().Tables, loop.Handle)
	for i := 0; i < len(d.queue); i++ {
		if i == Livelock {
			return nil, ErrLivelock
		}
		d.queue[i]()
	}
	return d.ops, nil
}

// feed tells an agent everything that another one was told.
func feed(t *tables.Tables, handle func(any)) {
	give(t.Services, edge.KindService, handle)
	slicesByKey := map[string]runtime.Object{}
	//determinism:ignore a slice is in the map of one Service, so that its key comes once
	for _, m := range t.Slices {
		for k, s := range m {
			slicesByKey[k] = s
		}
	}
	give(slicesByKey, edge.KindEndpointSlice, handle)
	give(t.Nodes, edge.KindNode, handle)
	give(t.Pods, edge.KindPod, handle)
	give(t.Namespaces, edge.KindNamespace, handle)
	give(t.Egresses, edge.KindEgress, handle)
	give(t.Pools, edge.KindExternalIPPool, handle)
	if t.Cfg.ByGroup() {
		give(t.EgressGroups, edge.KindEgressGroup, handle)
	}
	handle(edge.MembersEvent{Alive: t.Alive, Joined: t.HeardOf})
}

func give[T runtime.Object](m map[string]T, kind string, handle func(any)) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		handle(edge.ObjectEvent{Kind: kind, Key: k, Object: m[k]})
	}
	handle(edge.SyncedEvent{Kind: kind})
}

// Features implements datapath.Switch.
func (d *dry) Features() datapath.Features {
	return datapath.Features{Datapath: d.n.world.opts.Datapath}
}

// Apply implements datapath.Switch: it notes the ops, and calls them done.
func (d *dry) Apply(_ datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	d.ops = append(d.ops, ops...)
	d.later(func() { done(datapath.AllResults(len(ops), datapath.Done, nil)) })
}

func (d *dry) later(f func()) { d.queue = append(d.queue, f) }

// Dump implements datapath.Switch.
func (d *dry) Dump(done func([]datapath.Object, error)) { d.later(func() { done(d.sw, nil) }) }

// FlushConntrack implements datapath.Switch and datapath.Host.
func (d *dry) FlushConntrack(_ []datapath.Tuple, done func(error)) { d.later(func() { done(nil) }) }

// DumpConntrack implements datapath.Switch.
func (d *dry) DumpConntrack(_ []uint16, done func([]datapath.ConntrackEntry, error)) {
	d.later(func() { done(nil, nil) })
}

// ResolveTunnel implements datapath.Switch.
func (d *dry) ResolveTunnel(_ []netip.Addr, done func(error)) { d.later(func() { done(nil) }) }

type dryHost struct{ *dry }

// Dump implements datapath.Host.
func (d dryHost) Dump(done func([]datapath.Object, error)) { d.later(func() { done(d.host, nil) }) }

// DumpConntrack implements datapath.Host.
func (d dryHost) DumpConntrack(done func([]datapath.ConntrackEntry, error)) {
	d.later(func() { done(nil, nil) })
}

// Announce implements datapath.Host.
func (d dryHost) Announce(_ []datapath.Announcement, done func(error)) {
	d.later(func() { done(nil) })
}

// Check implements datapath.Host.
func (d dryHost) Check(_ datapath.Object, done func(error)) { d.later(func() { done(nil) }) }

type dryCluster struct{}

var errDry = errors.New("a dry run writes nothing")

// UpdateStatus implements edge.Cluster.
func (dryCluster) UpdateStatus(runtime.Object, func(runtime.Object, error)) {}

// Update implements edge.Cluster.
func (dryCluster) Update(runtime.Object, func(runtime.Object, error)) {}

// Create implements edge.Cluster.
func (dryCluster) Create(runtime.Object, func(runtime.Object, error)) {}

// Get implements edge.Cluster.
func (dryCluster) Get(_, _, _ string, done func(runtime.Object, error)) { done(nil, errDry) }

// Record implements edge.Cluster.
func (dryCluster) Record(edge.Ref, string, string, string) {}

type dryIPAM struct{}

// Add implements edge.IPAM.
func (dryIPAM) Add(_ edge.Attachment, done func([]netip.Prefix, error)) { done(nil, errDry) }

// Del implements edge.IPAM.
func (dryIPAM) Del(edge.Attachment, func(error)) {}

// GC implements edge.IPAM.
func (dryIPAM) GC([]edge.Attachment, []netip.Addr, func(error)) {}

type dryMembers struct{}

// SetPeers implements edge.Members.
func (dryMembers) SetPeers(map[string]netip.Addr) {}

// Leave implements edge.Members.
func (dryMembers) Leave() {}

type dryClock struct{ now func() time.Time }

// Now implements edge.Clock.
func (c dryClock) Now() time.Time { return c.now() }

// AfterFunc implements edge.Clock: nothing ever becomes due.
func (c dryClock) AfterFunc(time.Duration, edge.TimerClass, func()) edge.Timer { return dryTimer{} }

type dryTimer struct{}

// Stop implements edge.Timer.
func (dryTimer) Stop() {}
