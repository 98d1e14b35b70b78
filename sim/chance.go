package sim

import (
	"hash/fnv"
	"math/rand/v2"
)

// chance are the random streams of a world: one for the order of events and their latencies, one for
// what the network loses. They are apart, so that a packet more does not reorder events.
type chance struct {
	seed              uint64
	schedule, network *rand.PCG
	begun             map[string]uint64 // how often a step of that text began
}

// The numbers of the streams.
const (
	scheduleStream = 1
	networkStream  = 3
)

func newChance(seed uint64) chance {
	return chance{seed: seed, schedule: rand.NewPCG(seed, scheduleStream), network: rand.NewPCG(seed, networkStream), begun: map[string]uint64{}}
}

// BeginStep begins the random streams anew, from the seed and the text of a step. What a step does then
// does not depend on how much chance those before it needed: a step can be left out of a scenario, and
// those after it still meet the same orders, latencies and losses.
func (w *World) BeginStep(text string) {
	c := &w.chance
	c.begun[text]++
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // a hash does not fail
	step := h.Sum64() + c.begun[text]<<8
	c.schedule.Seed(c.seed, step+scheduleStream)
	c.network.Seed(c.seed, step+networkStream)
}
