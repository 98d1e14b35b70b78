package agent

import "time"

// bounds are the upper bounds of a Histogram's buckets, in seconds: from a bundle on a quiet node to a unit
// that was quarantined for long.
var bounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

// Histogram counts durations.
type Histogram struct {
	counts []uint64 // by bounds; the last one has what is longer than all
	n      uint64
	sum    float64
}

// Observe counts a duration.
func (h *Histogram) Observe(d time.Duration) {
	if h.counts == nil {
		h.counts = make([]uint64, len(bounds)+1)
	}
	i, s := 0, d.Seconds()
	for i < len(bounds) && s > bounds[i] {
		i++
	}
	h.counts[i]++
	h.n++
	h.sum += s
}

// Snapshot returns how many durations were counted, their sum in seconds, and for each upper bound in seconds
// how many were not longer.
func (h *Histogram) Snapshot() (n uint64, sum float64, cumulative map[float64]uint64) {
	cumulative = make(map[float64]uint64, len(bounds))
	var c uint64
	for i, b := range bounds {
		if h.counts != nil {
			c += h.counts[i]
		}
		cumulative[b] = c
	}
	return h.n, h.sum, cumulative
}
