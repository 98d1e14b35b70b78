package sim

import (
	"maps"
	"net/netip"
	"slices"

	"towtank/agent/edge"
)

// gossip is the membership of agents as hashicorp/memberlist behaves it: a member that does not answer
// is dropped from a view after memberTimeout; one that was dropped is found again when either side
// tries to rejoin, every memberRejoin; one that starts joins everybody it knows at once; one that
// leaves says so.
type gossip struct {
	w     *World
	views map[string]*view // by node
}

// view is what one agent believes.
type view struct {
	node    string
	members map[string]bool
	peers   map[string]netip.Addr
	failing map[string]edge.Timer // members that do not answer
	rejoin  edge.Timer
	joined  bool // the peers were tried
}

func newGossip(w *World) *gossip { return &gossip{w: w, views: map[string]*view{}} }

// start opens the view of an agent that starts: it knows itself, and joins when it is told of peers.
func (g *gossip) start(n *Node) {
	v := &view{node: n.name, members: map[string]bool{n.name: true}, failing: map[string]edge.Timer{}}
	g.views[n.name] = v
	g.arm(v)
	g.tell(v)
	g.changed()
}

func (g *gossip) arm(v *view) {
	v.rejoin = g.w.queue.After(g.w.opts.MemberRejoin, edge.Background, "gossip", "rejoin "+v.node, func() {
		if g.views[v.node] != v {
			return
		}
		g.join(v)
		g.arm(v)
	})
}

// stop ends a view without a word (kill), or with one (leave).
func (g *gossip) stop(n *Node, leave bool) {
	v := g.views[n.name]
	if v == nil {
		return
	}
	v.rejoin.Stop()
	//determinism:ignore each timer is stopped by itself
	for _, t := range v.failing {
		t.Stop()
	}
	delete(g.views, n.name)
	if leave {
		for _, o := range g.sorted() {
			if g.w.reachable(n.name, o.node) && o.members[n.name] {
				g.drop(o, n.name)
			}
		}
	}
	g.changed()
}

func (g *gossip) sorted() []*view {
	var out []*view
	for _, name := range slices.Sorted(maps.Keys(g.views)) {
		out = append(out, g.views[name])
	}
	return out
}

// setPeers tells a view which nodes there are, and has it join those it does not know.
func (g *gossip) setPeers(n *Node, peers map[string]netip.Addr) {
	v := g.views[n.name]
	if v == nil {
		return
	}
	v.peers = peers
	for _, m := range slices.Sorted(maps.Keys(v.members)) {
		if _, known := peers[m]; !known && m != v.node {
			g.drop(v, m)
		}
	}
	g.join(v)
	v.joined = true
	g.tell(v)
}

// join tries every peer that is not a member; who answers learns of the view's owner in turn.
func (g *gossip) join(v *view) {
	for _, name := range slices.Sorted(maps.Keys(v.peers)) {
		if name == v.node || v.members[name] || !g.alive(v.node, name) {
			continue
		}
		g.add(v, name)
		if o := g.views[name]; o != nil {
			if _, known := o.peers[v.node]; known {
				g.add(o, v.node)
			}
		}
	}
}

// alive reports whether two agents hear each other now.
func (g *gossip) alive(a, b string) bool {
	return g.responds(a) && g.responds(b) && g.w.reachable(a, b)
}

func (g *gossip) responds(name string) bool {
	n := g.w.nodes[name]
	return n != nil && g.views[name] != nil && n.up && n.agent != nil && !n.agent.dead && !n.agent.paused
}

// changed starts and stops the failure detection of every view after a disturbance.
func (g *gossip) changed() {
	for _, v := range g.sorted() {
		for _, m := range slices.Sorted(maps.Keys(v.members)) {
			if m == v.node {
				continue
			}
			ok := g.alive(v.node, m)
			t := v.failing[m]
			switch {
			case ok && t != nil:
				t.Stop()
				delete(v.failing, m)
			case !ok && t == nil:
				v.failing[m] = g.w.queue.After(g.w.opts.MemberTimeout, edge.Background, "gossip", "fail "+v.node+" "+m, func() {
					if g.views[v.node] == v && v.members[m] && !g.alive(v.node, m) {
						g.drop(v, m)
					}
					delete(v.failing, m)
				})
			}
		}
	}
}

func (g *gossip) add(v *view, name string) {
	v.members[name] = true
	if t := v.failing[name]; t != nil {
		t.Stop()
		delete(v.failing, name)
	}
	g.tell(v)
}

func (g *gossip) drop(v *view, name string) {
	delete(v.members, name)
	if t := v.failing[name]; t != nil {
		t.Stop()
		delete(v.failing, name)
	}
	g.tell(v)
}

// tell sends an agent its members.
func (g *gossip) tell(v *view) {
	n := g.w.nodes[v.node]
	if n == nil || n.agent == nil {
		return
	}
	p := n.agent
	alive := slices.Sorted(maps.Keys(v.members))
	joined := v.joined
	p.post("members", func() { p.hear(edge.MembersEvent{Alive: alive, Joined: joined}) })
}

// lastDisturbance is noted by the world for the invariants: until gossip has settled, a node is not
// quiet.
func (w *World) disturbed() { w.lastDisturbance = w.queue.Now() }

// gossipSettled reports whether everything that gossip can see has had time to be seen.
func (w *World) gossipSettled() bool {
	return w.queue.Now().Sub(w.lastDisturbance) >= w.opts.MemberTimeout+w.opts.MemberRejoin
}

// membersSeam is edge.Members of one agent.
type membersSeam struct{ p *proc }

// SetPeers implements edge.Members.
func (m membersSeam) SetPeers(peers map[string]netip.Addr) {
	m.p.node.world.queue.Post("gossip", "peers "+m.p.node.name, func() {
		if !m.p.dead {
			m.p.node.world.gossip.setPeers(m.p.node, peers)
		}
	})
}

// Leave implements edge.Members.
func (m membersSeam) Leave() { m.p.node.world.gossip.stop(m.p.node, true) }
