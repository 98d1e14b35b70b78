package fuzz

import (
	"fmt"
	"slices"
	"strings"
)

// cluster is what the scenario has made so far, as far as the steps that follow need to know it.
type cluster struct {
	nodes, externals, namespaces []string
	dmz                          bool
	pods                         map[string]*pod // by NS/NAME
	podOrder                     []string
	services                     []*service
	egresses                     []*egress
	pools                        []string
	statics                      map[string]string // addresses put on a node by hand, and which
	moved                        map[string]string // nodes that came back with another address, and which
	conns, streams               []string
	counter                      int
	workloads                    []string // KIND NAME of Deployments and StatefulSets
	containers                   []string // of bare CNI calls: ID NS/NAME node
	canary                       bool
	canaryStreams                []string
	gentle                       bool // no fault of the scenario may cost a packet of who is not touched
}

type pod struct {
	node, app   string
	stopped     bool
	terminating bool
	host        bool
	fixed       bool // its address is given
}

var apps = []string{"web", "api", "db"}

// maxPods is how many Pods there are at once: objects are few, so that they meet.
const maxPods = 9

var podActions = []action{
	{topicPods, 4, workStream, func(g *generator) bool { return len(g.podOrder) < maxPods }, (*generator).podCreate},
	{topicPods, 3, workStream, (*generator).hasPod, (*generator).podDelete},
	{topicPods, 2, workStream, (*generator).hasPod, (*generator).podReplace},
	{topicPods, 1.5, workStream, (*generator).hasPod, (*generator).podStopStart},
	{topicPods, 2, workStream, (*generator).hasPod, func(g *generator) { g.add("pod-ready %s %t", g.anyPod(), g.often(60)) }},
	{topicPods, 1, workStream, (*generator).hasPod, (*generator).podTerminate},
	{topicPods, 2, workStream, (*generator).hasPod, func(g *generator) {
		g.add(`patch pod %s {"metadata":{"labels":{"app":"%s"}}}`, g.anyPod(), pick(g, apps...))
	}},
	{topicPods, 0.7, workStream, (*generator).hasPod, func(g *generator) {
		g.add(`patch pod %s {"status":{"phase":"%s"}}`, g.anyPod(), pick(g, "Succeeded", "Failed", "Running"))
	}},
	{topicPods, 1, workStream, nil, (*generator).workload},
	{topicCNI, 0.7, workStream, nil, (*generator).cniCall},
}

func (g *generator) hasPod() bool { return len(g.podOrder) > 0 }

func (g *generator) node() string { return pick(g, g.nodes...) }

func (g *generator) anyPod() string { return pick(g, g.podOrder...) }

// podCreate makes a Pod with a name that no other has now; names come again.
func (g *generator) podCreate() {
	var key string
	for key == "" || g.pods[key] != nil {
		key = fmt.Sprintf("%s/p%d", pick(g, "default", "default", "shop"), g.rng.IntN(2*maxPods))
	}
	g.podNew(key)
}

func (g *generator) podNew(key string) {
	p := &pod{node: g.node(), app: pick(g, apps...), host: g.often(6), fixed: false}
	text := fmt.Sprintf("pod %s node=%s", key, p.node)
	if g.often(85) {
		text += " app=" + p.app
	}
	if g.often(30) {
		text += " serve=8080/tcp,8080/udp,8080/sctp"
	}
	switch {
	case p.host:
		text += " hostNetwork=true"
	case g.often(8):
		text += " ready=false"
	}
	if g.pods == nil {
		g.pods = map[string]*pod{}
	}
	g.pods[key] = p
	if !slices.Contains(g.podOrder, key) {
		g.podOrder = append(g.podOrder, key)
	}
	g.add("%s", text)
}

func (g *generator) podDelete() {
	key := g.anyPod()
	g.add("pod-delete %s", key)
	g.forget(key)
}

func (g *generator) forget(key string) {
	delete(g.pods, key)
	g.podOrder = remove(g.podOrder, key)
}

// podReplace deletes a Pod and makes one of the same name, at once or a little later.
func (g *generator) podReplace() {
	key := g.anyPod()
	g.add("pod-delete %s", key)
	g.forget(key)
	if g.often(50) {
		g.add("step %d", g.between(1, 20))
	}
	g.podNew(key)
}

func (g *generator) podStopStart() {
	key := g.anyPod()
	p := g.pods[key]
	if p.stopped {
		g.add("pod-start %s", key)
	} else {
		g.add("pod-stop %s", key)
	}
	p.stopped = !p.stopped
}

// podTerminate begins the end of a Pod; it is deleted with the others later.
func (g *generator) podTerminate() {
	key := g.anyPod()
	if g.pods[key].terminating {
		g.add("pod-delete %s", key)
		g.forget(key)
		return
	}
	g.pods[key].terminating = true
	g.add("pod-terminate %s serving=%t", key, g.often(60))
}

// cniCall makes a bare call of the container runtime.
func (g *generator) cniCall() {
	if len(g.containers) > 0 && g.often(60) {
		c := pick(g, g.containers...)
		if g.often(40) {
			g.add("cni check %s", c)
			return
		}
		g.add("cni del %s", c)
		g.containers = remove(g.containers, c)
		return
	}
	g.counter++
	c := fmt.Sprintf("c%d default/cni%d node=%s", g.counter, g.counter, g.node())
	if len(g.containers) > 0 && g.often(30) {
		// A second sandbox of a Pod that has one.
		w := strings.Fields(pick(g, g.containers...))
		c = fmt.Sprintf("c%d %s %s", g.counter, w[1], w[2])
	}
	g.containers = append(g.containers, c)
	g.add("cni add %s", c)
}

// workload makes, scales or deletes a Deployment or StatefulSet: Pods that nobody names.
func (g *generator) workload() {
	if len(g.workloads) > 0 && g.often(70) {
		w := pick(g, g.workloads...)
		kind, name, _ := strings.Cut(w, " ")
		if g.often(25) {
			g.add("delete %s default/%s", strings.ToLower(kind), name)
			g.workloads = remove(g.workloads, w)
			return
		}
		g.add(`patch %s default/%s {"spec":{"replicas":%d}}`, strings.ToLower(kind), name, g.between(0, 3))
		return
	}
	kind := pick(g, "Deployment", "StatefulSet")
	g.counter++
	name := fmt.Sprintf("w%d", g.counter)
	app := pick(g, apps...)
	g.workloads = append(g.workloads, kind+" "+name)
	g.apply(name, fmt.Sprintf("apiVersion: apps/v1\nkind: %s\nmetadata: {name: %s, namespace: default}\nspec:\n  replicas: %d\n"+
		"  selector: {matchLabels: {app: %s, of: %s}}\n  template:\n    metadata: {labels: {app: %s, of: %s}}\n    spec: {containers: [{name: c, image: c}]}\n",
		kind, name, g.between(1, 2), app, name, app, name))
}
