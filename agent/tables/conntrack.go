package tables

import (
	"time"

	"towtank/agent/edge"
	"towtank/datapath"
)

// KernelConntrack is how a concern has the kernel forget connections. What changes is flushed as it changes; what
// became of a flush that failed is not known, and so is what an earlier process left: then all entries are looked at.
type KernelConntrack struct {
	env     *Env
	stale   func([]datapath.ConntrackEntry) []datapath.Tuple
	delay   time.Duration // of the last retry
	waiting bool          // for the next retry
	looking bool
	again   bool // and once more when this dump is done
}

// Back-off of flushes and dumps that fail.
const (
	conntrackRetryMin = time.Second
	conntrackRetryMax = time.Minute
)

// NewKernelConntrack returns one that takes those entries for stale which a tuple of stale selects.
func NewKernelConntrack(env *Env, stale func([]datapath.ConntrackEntry) []datapath.Tuple) *KernelConntrack {
	return &KernelConntrack{env: env, stale: stale}
}

// Flush deletes what the tuples select. It costs one effect, or none if there are no tuples.
func (k *KernelConntrack) Flush(tuples []datapath.Tuple) {
	if len(tuples) > 0 {
		k.env.Host.FlushConntrack(tuples, k.answered)
	}
}

// Look reads all entries and flushes the stale ones. Its cost follows the number of all connections of the node.
func (k *KernelConntrack) Look() {
	if k.looking {
		k.again = true
		return
	}
	k.looking, k.again = true, false
	k.env.Host.DumpConntrack(func(entries []datapath.ConntrackEntry, err error) {
		k.looking = false
		if err != nil {
			k.answered(err) // the retry looks at what came meanwhile, too
			return
		}
		if tuples := k.stale(entries); len(tuples) > 0 {
			k.Flush(tuples)
		} else {
			k.answered(nil)
		}
		if k.again {
			k.Look()
		}
	})
}

func (k *KernelConntrack) answered(err error) {
	switch {
	case err == nil:
		k.delay = 0
	case !k.waiting:
		k.delay = min(max(2*k.delay, conntrackRetryMin), conntrackRetryMax)
		k.waiting = true
		k.env.Log.Error(err, "The kernel's conntrack was not flushed", "retry", k.delay)
		k.env.Clock.AfterFunc(k.delay, edge.Work, func() {
			k.waiting = false
			k.Look()
		})
	}
}
