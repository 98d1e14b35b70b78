package fuzz_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"towtank/scenarios/fuzz"
)

// The seeds of the corpus find nothing, and together they reach much: what a version of the generator draws
// from a seed may be another scenario in the next one, but a corpus that has become poor is to be made anew.
func TestCorpus(t *testing.T) {
	if testing.Short() {
		t.Skip("seeds of full length")
	}
	data, err := os.ReadFile("testdata/corpus.txt")
	if err != nil {
		t.Fatal(err)
	}
	reached := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		text, _, _ := strings.Cut(line, "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		r, all := fuzz.Try(seed, fuzz.DefaultConfig(), true)
		if r.Failed() {
			t.Errorf("%s\n%v\nreplay: towtank replay --seed %d", r.Wrong, r.Findings, seed)
		}
		for _, what := range all {
			reached[what] = true
		}
	}
	const atLeast = 400
	if len(reached) < atLeast {
		t.Errorf("the corpus reaches %d, want %d and more: make it anew with towtank fuzz --corpus", len(reached), atLeast)
	}
	t.Logf("reached %d", len(reached))
}
