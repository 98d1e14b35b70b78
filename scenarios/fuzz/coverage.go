package fuzz

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"towtank/datapath"
	"towtank/scenarios"
	"towtank/sim"
)

// coverage is what a run has reached: decisions of agents, shapes of objects, and at which effects
// faults hit.
type coverage struct {
	seen map[string]bool
	told map[string]int // effects already looked at, by node
	memo map[datapath.Object]bool
}

func newCoverage() *coverage {
	return &coverage{seen: map[string]bool{}, told: map[string]int{}, memo: map[datapath.Object]bool{}}
}

func (c *coverage) hook(w *sim.World) {
	w.OnDecision = func(name string) { c.seen["decision "+name] = true }
}

// step looks at what an agent did meanwhile: the effects, with the faults that hit them; after a settle
// at what is wanted.
func (c *coverage) step(w *sim.World, s scenarios.Step) {
	if w == nil {
		return
	}
	for _, n := range w.Nodes() {
		for _, e := range n.JournalSince(c.told[n.Name()]) {
			c.told[n.Name()]++
			if e.Fault != "" {
				c.seen[fmt.Sprintf("fault %s %s %s", e.Class, e.Fault, unitKinds(e.Units))] = true
			}
		}
		if strings.HasPrefix(s.Text, "settle") && n.Store() != nil {
			for _, o := range n.Store().Desired() {
				if !c.memo[o] {
					c.memo[o] = true
					c.seen["shape "+shape(o)] = true
				}
			}
		}
	}
}

func unitKinds(units []string) string {
	var out []string
	for _, u := range units {
		k, _, _ := strings.Cut(u, "/")
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "+")
}

var (
	varying = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-f]{2}(:[0-9a-f]{2}){5}|[0-9a-f]*:[0-9a-f:]*:[0-9a-f:]*|\d+(\.\d+){3}|\d+`)
	lists   = regexp.MustCompile(`(,bucket=[^,]*(,[^,]*)*)+$`)
	strange = regexp.MustCompile(`(dev |external_ids:towtank-[a-z-]+=|alias |name=)\S+`)
)

// shape is an object's text without what differs between objects of one sort. Of ports and links only
// the kind counts: names are in them.
func shape(o datapath.Object) string {
	k := o.Kind()
	if k == datapath.KindPort || k == datapath.KindLink {
		return string(k)
	}
	text := strange.ReplaceAllString(lists.ReplaceAllString(o.String(), ",buckets"), "$1_")
	return string(k) + " " + varying.ReplaceAllString(text, "N")
}

func (c *coverage) list() []string { return slices.Sorted(maps.Keys(c.seen)) }
