package sim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"towtank/datapath"
	"towtank/internal/spelling"
	"towtank/sim/kube"
)

// SeamOf says which seam an effect class is counted for: switch, host, api, or "".
func SeamOf(class string) string { return seamOf(class) }

// MarkedJournal returns the effects since the last mark.
func (n *Node) MarkedJournal() []Entry { return n.journal[n.marked:] }

// Holders returns the names of the machines that hold an address and are up, sorted by position: nodes
// only.
func (w *World) Holders(ip netip.Addr) []string {
	var out []string
	for _, n := range w.nodeOrder {
		if n.up && n.ns.HasAddress(ip) {
			out = append(out, n.name)
		}
	}
	return out
}

// Await lets time pass until the condition holds, for at most limit.
func (w *World) Await(cond func() bool, limit time.Duration) error {
	deadline := w.queue.Now().Add(limit)
	for budget := Livelock; budget > 0; budget-- {
		if cond() {
			return nil
		}
		if w.queue.Step() {
			continue
		}
		t, ok := w.queue.earliest(true)
		if !ok || t.at.After(deadline) {
			return fmt.Errorf("no answer within %s", limit)
		}
		w.queue.now = maxTime(w.queue.now, t.at)
	}
	return ErrLivelock
}

// Exec has somebody type a command on a node.
func (w *World) Exec(n *Node, command string) (string, error) {
	if !n.up {
		return "", fmt.Errorf("node %s is off", n.name)
	}
	n.ByHand()
	word := ""
	if words := strings.Fields(command); len(words) > 0 {
		word = words[0]
	}
	switch {
	case slices.Contains(ovsTools, word):
		return n.execOVS(command)
	case !slices.Contains(hostTools, word):
		known := slices.Concat(hostTools, ovsTools)
		return "", fmt.Errorf("%s: command not modelled%s (known: %s)", word, spelling.Hint(word, known), strings.Join(known, ", "))
	}
	return n.ns.Exec(command)
}

// The commands that somebody can type on a node: those of its host, and of its switch.
var (
	hostTools = []string{
		"ip", "iptables", "ip6tables", "iptables-restore", "ip6tables-restore", "iptables-save", "ip6tables-save", "ipset", "sysctl", "conntrack",
	}
	ovsTools = []string{"ovs-vsctl", "ovs-ofctl"}
)

// ExecPod has somebody type a command in a Pod.
func (w *World) ExecPod(key, command string) (string, error) {
	s := w.runtime.sandboxOf(key)
	if s == nil || s.ns == nil {
		return "", fmt.Errorf("pod %s does not run", key)
	}
	return s.ns.Exec(command)
}

// DumpText returns what is on a node, in the syntax of the tools: switch, host, store, or all for "".
func (w *World) DumpText(n *Node, what string) string {
	var b strings.Builder
	if what == "switch" || what == "" {
		fmt.Fprintf(&b, "# %s: switch\n%s", n.name, n.sw.DumpText())
		for _, st := range n.sw.Ports() {
			if st.Port != nil {
				b.WriteString(st.Port.String() + "\n")
			}
		}
	}
	if what == "host" || what == "" {
		fmt.Fprintf(&b, "# %s: host\n%s", n.name, n.ns.DumpText())
	}
	if (what == "store" || what == "") && n.agent != nil && n.agent.loop != nil {
		fmt.Fprintf(&b, "# %s: store\n", n.name)
		st := n.agent.loop.Env().Store
		for _, u := range st.Units() {
			fmt.Fprintf(&b, "%s\n", n.describe(u))
			for _, o := range st.Objects(u) {
				state := "known"
				if known := st.Known(o.Key()); known == nil || known.String() != o.String() {
					state = "pending"
				}
				fmt.Fprintf(&b, "  %-7s %-8s %s\n", state, o.Kind(), o)
			}
			for _, k := range st.Waiting(u) {
				fmt.Fprintf(&b, "  waiting %s\n", k)
			}
		}
	}
	return b.String()
}

// UnitBelongs reports whether a unit of an agent, or what it is about, is one of an object: pod, service,
// egress or node. The flow that leaves a skipped Service to others is none of that Service (S-015).
func UnitBelongs(unit, kind, namespace, name string) bool {
	k, rest, _ := cutUnit(unit)
	switch kind {
	case "service":
		return (k == "svcport" && strings.HasPrefix(rest, namespace+"/"+name+":")) || (k == "svchealth" && rest == namespace+"/"+name)
	case "node":
		return k == "node" && rest == name
	case "pod":
		return (k == "podegress" || k == "pod") && rest == namespace+"/"+name
	case "egress":
		return (k == "status" || k == "egress") && rest == name
	}
	return false
}

// ObjectsOf returns the objects in the dumps of a node that its agent has for matching units.
func (n *Node) ObjectsOf(match func(unit string) bool) []datapath.Object {
	if n.agent == nil || n.agent.loop == nil {
		return nil
	}
	there := map[datapath.Key]bool{}
	for _, o := range n.Dump() {
		there[o.Key()] = true
	}
	env := n.agent.loop.Env()
	seen := map[datapath.Key]bool{}
	var out []datapath.Object
	for _, u := range env.Store.Units() {
		if !match(u) && !slices.ContainsFunc(n.agent.loop.About(u), match) {
			continue
		}
		for _, o := range env.Store.Objects(u) {
			if there[o.Key()] && !seen[o.Key()] {
				seen[o.Key()] = true
				out = append(out, o)
			}
		}
	}
	return out
}

// Dump returns all objects of ours on a node.
func (n *Node) Dump() []datapath.Object {
	return append(n.sw.Dump(), n.ns.Dump()...)
}

// SetPodReady sets the readiness of a Pod; one that the kubelet starts anew keeps it.
func (w *World) SetPodReady(key string, ready bool) error {
	w.runtime.run(key).notReady = !ready
	ns, name, _ := cutKey(key)
	return w.Kube.SetPodReady(ns, name, ready)
}

// EndServers ends the processes of a Pod, whose network stays until it is deleted: its ports are refused.
func (w *World) EndServers(key string) { w.runtime.endServers(key) }

// SetEndpoints gives a Service without selector endpoints that answer, spread over nodes.
func (w *World) SetEndpoints(namespace, service string, count int, on []*Node) error {
	if len(on) == 0 {
		return errors.New("there is no node to put endpoints on")
	}
	return w.traffic.endpoints(namespace, service, count, on)
}

// Kinds returns every kind that an agent may watch, with whatever options.
func Kinds() []kube.Kind { return watchedBy(true) }

// Desired returns what the node's agent wants on it, sorted by key.
func (n *Node) Desired() []datapath.Object {
	if n.agent == nil || n.agent.loop == nil {
		return nil
	}
	return n.agent.loop.Env().Store.Desired()
}
