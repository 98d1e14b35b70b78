package fuzz

import (
	"maps"
	"slices"
)

// topic is what an action is about. A seed draws how often each of them comes.
type topic string

const (
	topicPods       topic = "pods"
	topicServices   topic = "services"
	topicEgress     topic = "egress"
	topicNodes      topic = "nodes" // labels and annotations
	topicTraffic    topic = "traffic"
	topicTime       topic = "time"
	topicAgents     topic = "agents"
	topicOVS        topic = "ovs"
	topicPower      topic = "power"
	topicNetwork    topic = "network"
	topicWatches    topic = "watches"
	topicEffects    topic = "effects"
	topicClocks     topic = "clocks"
	topicHands      topic = "hands" // changes by hand
	topicController topic = "controller"
	topicCNI        topic = "cni"
)

// faulty are the topics that are faults: a seed leaves out half of them.
var faulty = []topic{
	topicAgents, topicOVS, topicPower, topicNetwork, topicWatches, topicEffects, topicClocks, topicHands, topicController,
}

// peaceful are the others.
var peaceful = []topic{topicPods, topicServices, topicEgress, topicNodes, topicTraffic, topicTime, topicCNI}

// profiles say how often topics come, relative to the usual; 0: never.
var profiles = map[string]map[topic]float64{
	"all":      {},
	"churn":    {topicPods: 3, topicCNI: 3, topicOVS: 0, topicPower: 0, topicNetwork: 0, topicHands: 0, topicEgress: 0.5},
	"egress":   {topicEgress: 4, topicNodes: 3, topicServices: 0.3, topicNetwork: 2, topicPower: 2, topicController: 2},
	"services": {topicServices: 4, topicPods: 2, topicEgress: 0},
	"faults":   {topicAgents: 3, topicOVS: 3, topicPower: 3, topicNetwork: 3, topicWatches: 3, topicEffects: 3, topicHands: 3, topicController: 3},
	"calm":     {topicAgents: 0, topicOVS: 0, topicPower: 0, topicNetwork: 0, topicWatches: 0, topicEffects: 0, topicClocks: 0, topicHands: 0, topicController: 0},
}

// Profiles returns the names of the profiles, sorted.
func Profiles() []string { return slices.Sorted(maps.Keys(profiles)) }

// swarm draws how often each topic comes in this scenario. Tests that leave things out find what those
// that do everything at once hide.
func (g *generator) swarm() {
	of := func(t topic) float64 {
		if w, ok := profiles[g.cfg.Profile][t]; ok {
			return w
		}
		return 1
	}
	for _, t := range peaceful {
		g.weights[t] = of(t) * pick(g, 0.3, 1, 1, 3)
	}
	g.weights[topicEgress] *= pick(g, 0.0, 1, 1, 1)
	for _, t := range faulty {
		g.weights[t] = of(t) * pick(g, 0, 0, 0.3, 1, 3)
	}
	g.gentle = true
	for _, t := range []topic{topicOVS, topicPower, topicNetwork, topicHands} {
		g.gentle = g.gentle && g.weights[t] == 0
	}
}

// action is a way to go on.
type action struct {
	topic  topic
	weight float64
	from   stream
	can    func(*generator) bool // nil: always
	do     func(*generator)
}

// actions are all of them. It is set by init: they refer to each other.
var actions []action

func init() {
	actions = slices.Concat(timeActions, podActions, serviceActions, egressActions, trafficActions, faultActions)
}

// timeActions let things happen.
var timeActions = []action{
	{topicTime, 8, planStream, nil, func(g *generator) { g.add("step %d", pick(g, 1, 2, 5, 10, 30, 100)) }},
	{topicTime, 4, planStream, nil, func(g *generator) {
		g.add("advance %s", pick(g, "1ms", "10ms", "50ms", "200ms", "1s", "1s", "3s", "7s", "20s"))
	}},
	{topicTime, 1, planStream, nil, func(g *generator) { g.add("advance %s", pick(g, "30s", "45s", "70s")) }},
	// What somebody broke by hand is found by the next audit, which no settle waits for.
	{topicTime, 4, planStream, func(g *generator) bool { return !g.hands }, func(g *generator) {
		g.settle()
		for range g.between(0, 2) {
			g.begin(trafficStream)
			g.probe()
		}
	}},
}
