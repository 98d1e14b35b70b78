package fuzz

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Summary is the account of many seeds.
type Summary struct {
	Seeds, Failed int
	Steps         int
	Virtual, Wall time.Duration // sums
	// Findings are the sorts of findings, with the smallest scenario's seed for each.
	Findings map[string]*Sort
	Reached  map[string]uint64 // by what: the seed that reached it first
	done     map[string]bool   // seeds and their options, so that none counts twice
}

// Sort is findings of one sort.
type Sort struct {
	Example Finding
	Seed    uint64
	Args    string
	Seeds   int // how many have it
}

// NewSummary returns one of no seeds.
func NewSummary() *Summary {
	return &Summary{Findings: map[string]*Sort{}, Reached: map[string]uint64{}, done: map[string]bool{}}
}

// add counts a seed; what it reached first is noted in it.
func (s *Summary) add(r *Seed, reached []string) {
	key := fmt.Sprint(r.Seed, r.Args)
	if s.done[key] {
		return
	}
	s.done[key] = true
	s.Seeds++
	s.Steps += r.Steps
	s.Virtual += time.Duration(r.Virtual)
	s.Wall += time.Duration(r.Wall)
	for _, what := range reached {
		if _, known := s.Reached[what]; !known {
			s.Reached[what] = r.Seed
			r.Reached = append(r.Reached, what)
		}
	}
	if !r.Failed() {
		return
	}
	s.Failed++
	all := r.Findings
	if r.Wrong != "" {
		all = append(slices.Clone(all), Finding{What: "wrong scenario", About: class(r.Wrong), Detail: r.Wrong})
	}
	counted := map[string]bool{}
	for i := range all {
		k := all[i].Key()
		if counted[k] {
			continue
		}
		counted[k] = true
		if s.Findings[k] == nil {
			s.Findings[k] = &Sort{Example: all[i], Seed: r.Seed, Args: r.Args}
		}
		f := s.Findings[k]
		f.Seeds++
		if r.Seed < f.Seed {
			f.Example, f.Seed, f.Args = all[i], r.Seed, r.Args
		}
	}
}

// Merge reads lines of results and adds their seeds. A seed that was counted is not counted again.
func (s *Summary) Merge(name string, r io.Reader) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	for n := 1; in.Scan(); n++ {
		var seed Seed
		if err := json.Unmarshal(in.Bytes(), &seed); err != nil {
			return fmt.Errorf("%s:%d: want a JSON object, one a line: %w", name, n, err)
		}
		if seed.Kind == "" {
			return fmt.Errorf("%s:%d: kind: found none, allowed: what towtank fuzz --json writes", name, n)
		}
		if seed.Kind != "seed" {
			continue // of a later version
		}
		if seed.Version != resultVersion {
			return fmt.Errorf("%s:%d: found version %d, allowed %d", name, n, seed.Version, resultVersion)
		}
		reached := seed.Reached
		seed.Reached = nil
		s.add(&seed, reached)
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// maxLine bounds a line of results, in bytes.
const maxLine = 64 << 20

// Sorts returns the sorts of findings, those of most seeds first.
func (s *Summary) Sorts() []*Sort {
	out := slices.Collect(maps.Values(s.Findings))
	slices.SortFunc(out, func(a, b *Sort) int {
		return cmp.Or(cmp.Compare(b.Seeds, a.Seeds), cmp.Compare(a.Seed, b.Seed), cmp.Compare(a.Example.Key(), b.Example.Key()))
	})
	return out
}

// Write writes the account for people.
func (s *Summary) Write(w io.Writer, wall time.Duration) {
	for _, f := range s.Sorts() {
		fmt.Fprintf(w, "FOUND by %d seeds: %s\n  first: towtank replay --seed %d%s\n", f.Seeds, f.Example.String(), f.Seed, f.Args)
	}
	fmt.Fprintf(w, "%d seeds, %d failed; %d steps, %.1f simulated hours", s.Seeds, s.Failed, s.Steps, s.Virtual.Hours())
	if wall > 0 && s.Seeds > 0 {
		fmt.Fprintf(w, " in %s: %.1f seeds/s, %.0f simulated seconds a second", wall.Round(time.Second/10), float64(s.Seeds)/wall.Seconds(), s.Virtual.Seconds()/wall.Seconds())
	}
	if len(s.Reached) > 0 {
		fmt.Fprintf(w, "; reached %d", len(s.Reached))
	}
	fmt.Fprintln(w)
}
