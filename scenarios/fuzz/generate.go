// Package fuzz explores: it draws scenarios from seeds, runs them in the tank, and shrinks what fails to
// a few lines.
//
//	config.go, profile.go   what is drawn, and how often
//	generate.go             seed → scenario: phases, steps
//	objects.go, pods.go, faults.go, traffic.go   the steps of one topic each
//	run.go, finding.go      a run, and what it found
//	shrink.go, simplify.go  the smallest scenario that fails in the same way
//	campaign.go, result.go  many seeds, and their account
//	coverage.go             what runs have reached
package fuzz

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"towtank/scenarios/lang"
)

// stream is a source of chance of its own: what one draws does not shift the others.
type stream uint64

const (
	setupStream stream = iota + 1
	planStream         // which step comes next, and the schedule
	workStream         // objects and Pods
	faultStream
	trafficStream
)

// generator draws one scenario.
type generator struct {
	cfg     Config
	seed    uint64
	opts    lang.Options
	lines   []lang.Line
	files   []lang.Manifest
	weights map[topic]float64
	rng     *rand.Rand // of the step that is drawn
	cluster
	broken
	err error
}

// Generate draws the scenario of a seed. The same seed and configuration give the same scenario.
func Generate(seed uint64, cfg Config) (*lang.File, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &generator{cfg: cfg, seed: seed, weights: map[topic]float64{}}
	g.reset()
	g.begin(setupStream)
	g.swarm()
	g.setup()
	for len(g.lines) < cfg.Steps {
		g.safetyPhase()
		g.heal()
		g.livenessPhase()
	}
	if g.err != nil {
		return nil, fmt.Errorf("seed %d: %w", seed, g.err)
	}
	f := &lang.File{Name: fmt.Sprintf("seed-%d", seed), Lines: g.lines, Files: g.files}
	for i := range f.Lines {
		f.Lines[i].Number = i + 1
	}
	return f, nil
}

// begin has what is drawn next come from a stream, at a place of its own for each step.
func (g *generator) begin(s stream) {
	seed := g.seed
	if s == setupStream {
		seed %= 1 << variationShift
	}
	g.rng = rand.New(rand.NewPCG(seed, uint64(s)<<32+uint64(len(g.lines))))
}

// variationShift is where in a seed the number of a variation begins: variations of one seed have the same
// cluster and the same weights of topics, and go on otherwise.
const variationShift = 32

// Variation returns the n-th variation of a seed (0: itself).
func Variation(seed uint64, n uint32) uint64 {
	return seed%(1<<variationShift) | uint64(n)<<variationShift
}

// add appends a step, given as text.
func (g *generator) add(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	step, err := lang.ParseStep(text)
	if err != nil && g.err == nil {
		g.err = fmt.Errorf("the step %q was drawn: %w", text, err)
	}
	g.lines = append(g.lines, lang.Line{Step: step})
}

// apply appends a step that applies a manifest, which gets a name of its own.
func (g *generator) apply(name, yaml string) {
	file := fmt.Sprintf("%s-%d.yaml", name, len(g.files)+1)
	g.files = append(g.files, lang.Manifest{Name: file, Data: []byte(yaml)})
	g.add("apply %s", file)
}

// often reports true in p of 100 cases.
func (g *generator) often(p int) bool { return g.rng.IntN(100) < p }

// between returns a number from a to b.
func (g *generator) between(a, b int) int { return a + g.rng.IntN(b-a+1) }

func pick[T any](g *generator, list ...T) T { return list[g.rng.IntN(len(list))] }

// phaseSteps are the bounds of the number of steps of a safety phase.
const (
	minPhase = 15
	maxPhase = 60
)

// safetyPhase draws steps of all topics, faults among them.
func (g *generator) safetyPhase() {
	g.begin(planStream)
	n := min(g.between(minPhase, maxPhase), max(g.cfg.Steps-len(g.lines), 1))
	g.startCanaries()
	for end := len(g.lines) + n; len(g.lines) < end; {
		g.begin(planStream)
		a, before := g.choose(), len(g.lines)
		g.begin(a.from)
		if a.do(g); len(g.lines) == before {
			g.add("step 1") // it had nothing to do it to
		}
	}
}

// choose draws an action among those that can be done now.
func (g *generator) choose() *action {
	var total float64
	weight := func(a *action) float64 {
		if a.can != nil && !a.can(g) {
			return 0
		}
		return a.weight * g.weights[a.topic]
	}
	for i := range actions {
		total += weight(&actions[i])
	}
	x := g.rng.Float64() * total
	for i := range actions {
		if w := weight(&actions[i]); w > 0 {
			if x -= w; x < 0 {
				return &actions[i]
			}
		}
	}
	return &actions[0]
}

// gossipTime is how long everything that gossip can see takes to be seen, with the default options.
const gossipTime = "90s"

// livenessPhase lets everything come to rest, and looks at what packets experience.
func (g *generator) livenessPhase() {
	g.add("advance %s", gossipTime)
	g.settle()
	g.stopCanaries()
	for range 4 {
		g.begin(trafficStream)
		g.probe()
	}
}

// settle waits long enough for whatever was refused several times to be tried again.
func (g *generator) settle() {
	if g.weights[topicEffects] > 0 {
		g.add("settle within=15m") // see maxFailures
		clear(g.failures)
		return
	}
	g.add("settle")
}

// setup draws the cluster and what is in it at first.
func (g *generator) setup() {
	g.drawOptions()
	for i := range g.cfg.Nodes {
		g.nodes = append(g.nodes, fmt.Sprintf("n%d", i+1))
	}
	g.add("nodes %s", strings.Join(g.nodes, " "))
	g.externals = []string{"ext"}
	g.add("external ext")
	if g.often(20) && g.opts.IPv4() {
		g.dmz = true
		g.add("network dmz cidr=172.20.0.0/16 vlan=20")
		g.add("external vext net=dmz")
	}
	for i, n := range g.nodes {
		if i == 0 || g.often(70) {
			g.add("label node/%s egress=yes", n)
		}
		if g.often(50) {
			g.add("label node/%s topology.kubernetes.io/zone=%s", n, pick(g, "a", "b"))
		}
	}
	g.add("namespace shop team=x")
	g.namespaces = []string{"default", "shop"}
	g.canaries()
	for range g.between(2, 4) {
		g.begin(workStream)
		g.podCreate()
	}
	for range g.between(1, 3) {
		g.begin(workStream)
		g.serviceApply()
	}
	if g.weights[topicEgress] > 0 {
		for range g.between(1, 2) {
			g.begin(workStream)
			g.egressApply()
		}
	}
	g.add("settle")
}

// drawOptions draws the options of the cluster; most are the defaults.
func (g *generator) drawOptions() {
	g.opts = lang.DefaultOptions()
	set := func(key, value string) { g.add("option %s=%s", key, value) }
	switch g.rng.IntN(10) {
	case 0, 1:
		set("ip", "v6")
		g.opts.IP = "v6"
	case 2, 3:
		set("ip", "dual")
		g.opts.IP = "dual"
	}
	switch g.rng.IntN(10) {
	case 0:
		set("traffic", "noEncap")
		g.opts.Traffic = "noEncap"
	case 1:
		set("traffic", "hybrid")
		g.opts.Traffic = "hybrid"
	}
	if g.often(20) {
		set("tunnel", "vxlan")
	}
	if g.often(10) {
		set("proxyAll", "false")
		g.opts.ProxyAll = false
	}
	if g.often(10) {
		set("proxyLoadBalancerIPs", "false")
	}
	if g.often(15) {
		set("maxEgressIPsPerNode", fmt.Sprint(g.between(1, 2)))
	}
	if g.often(10) {
		set("loadBalancerMode", "dsr")
	}
	if g.often(20) && g.opts.IPv4() {
		set("podCIDRSize", "28") // addresses come again soon
	}
	if g.often(30) {
		set("serviceCIDR", "10.96.0.0/28,fd00:96::/124") // so do ClusterIPs
	}
	if g.often(10) {
		set("skipServices", "default/s1")
	}
	if g.often(10) {
		set("membership", "egressgroup")
	}
	if g.often(10) {
		set("nodePortAddresses", pick(g, "172.18.0.0/16", "172.18.0.11/32,fd00:18::b/128", "203.0.113.0/24"))
	}
}

// remove takes a value out of a list.
func remove[T comparable](list []T, v T) []T {
	return slices.DeleteFunc(list, func(x T) bool { return x == v })
}
