package fuzz

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	first = flag.Uint64("first", 1, "the first seed")
	many  = flag.Uint64("many", 3, "how many seeds")
)

func TestTry(t *testing.T) {
	for s := *first; s < *first+*many; s++ {
		f, err := Generate(s, DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		if os.Getenv("PRINT") != "" {
			os.WriteFile(fmt.Sprintf("/tmp/h3/seed-%d.scenario", s), f.Format(), 0o644)
		}
		st := time.Now()
		r := Do(f, RunOptions{Seed: s})
		fmt.Printf("seed %d %v steps=%d virtual=%v hash=%s wrong=%v findings=%d\n", s, time.Since(st), r.Steps, r.Virtual, r.Hash, r.Wrong, len(r.Findings))
		for i, x := range r.Findings {
			if i < 2 {
				fmt.Printf("   line %d %s\n      KEY %s\n", x.Line, x.String(), x.Key())
			}
		}
	}
}
