package fuzz

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Campaign is a run of many seeds.
type Campaign struct {
	Config
	// From and To are the first and last seed; To 0: without an end.
	From, To uint64
	// For bounds the time, 0: not.
	For time.Duration
	// Jobs is how many seeds run at once.
	Jobs int
	// Coverage has what the seeds reach noted.
	Coverage bool
	// Steer has variations of the seeds that reach something new run before further seeds: what is rare
	// is rare together.
	Steer bool
	// Each is called with the result of every seed, in the order in which they end, from one goroutine.
	Each func(*Seed)
}

// Seed is the result of one seed.
type Seed struct {
	Version  int       `json:"v"`
	Kind     string    `json:"kind"` // seed
	Seed     uint64    `json:"seed"`
	Args     string    `json:"args"` // of the command line, for the same scenario
	Steps    int       `json:"steps"`
	Virtual  int64     `json:"virtual_ns"`
	Wall     int64     `json:"wall_ns"`
	Hash     string    `json:"hash"`
	Findings []Finding `json:"findings,omitempty"`
	Wrong    string    `json:"wrong,omitempty"` // why the scenario could not be run as it is written
	// Reached is what no earlier seed of the campaign has reached.
	Reached []string `json:"reached,omitempty"`
}

// Failed reports whether something does not hold.
func (s *Seed) Failed() bool { return len(s.Findings) > 0 || s.Wrong != "" }

// resultVersion is the version of the lines of results.
const resultVersion = 1

// Try runs one seed.
func Try(seed uint64, cfg Config, coverage bool) (*Seed, []string) {
	began := time.Now()
	out := &Seed{Version: resultVersion, Kind: "seed", Seed: seed, Args: cfg.Args()}
	f, err := Generate(seed, cfg)
	if err != nil {
		out.Wrong = err.Error()
		return out, nil
	}
	run := Do(f, RunOptions{Seed: seed, Coverage: coverage})
	out.Steps, out.Virtual, out.Hash, out.Findings = run.Steps, int64(run.Virtual), run.Hash, run.Findings
	if run.Wrong != nil {
		out.Wrong = run.Wrong.Error()
	}
	out.Wall = int64(time.Since(began))
	return out, run.Reached
}

// Run runs the campaign until its seeds or its time are used up, or the context ends.
func (c *Campaign) Run(ctx context.Context) (*Summary, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.To != 0 && c.To < c.From {
		return nil, fmt.Errorf("seeds: found %d..%d, allowed: A..B with A not above B", c.From, c.To)
	}
	if c.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.For)
		defer cancel()
	}
	next := &source{seed: c.From, to: c.To}
	seeds := make(chan uint64)
	results := make(chan tried)
	go func() {
		defer close(seeds)
		for {
			s, ok := next.take()
			if !ok {
				return
			}
			select {
			case seeds <- s:
			case <-ctx.Done():
				return
			}
		}
	}()
	var wg sync.WaitGroup
	for range max(c.Jobs, 1) {
		wg.Go(func() {
			for s := range seeds {
				seed, reached := Try(s, c.Config, c.Coverage)
				results <- tried{seed, reached}
			}
		})
	}
	go func() { wg.Wait(); close(results) }()
	sum := NewSummary()
	for r := range results {
		sum.add(r.seed, r.reached)
		if c.Steer && len(r.seed.Reached) > 0 {
			next.vary(r.seed.Seed)
		}
		if c.Each != nil {
			c.Each(r.seed)
		}
	}
	return sum, nil
}

type tried struct {
	seed    *Seed
	reached []string
}

// variationsPer is how many variations of a seed that reached something new are tried.
const variationsPer = 3

// source gives out the seeds of a campaign: variations that wait first, then one after the other.
type source struct {
	mu       sync.Mutex
	seed, to uint64
	ended    bool
	waiting  []uint64
}

func (s *source) take() (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.waiting); n > 0 {
		seed := s.waiting[n-1]
		s.waiting = s.waiting[:n-1]
		return seed, true
	}
	if s.ended || s.to != 0 && s.seed > s.to {
		return 0, false
	}
	seed := s.seed
	s.seed++
	s.ended = s.seed == 0 // the last seed there is
	return seed, true
}

// vary adds the next variations of a seed.
func (s *source) vary(seed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := uint32(seed >> variationShift)
	for i := range uint32(variationsPer) {
		s.waiting = append(s.waiting, Variation(seed, first*variationsPer+i+1))
	}
}
