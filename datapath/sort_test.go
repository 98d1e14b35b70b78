package datapath

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Things are arranged as a stable sort arranges them, and not at all if they are in order.
func TestArrange(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		places := make([]int, rng.IntN(150))
		for i := range places {
			places[i] = rng.IntN(1 + rng.IntN(128))
		}
		want := make([]int, len(places))
		for i := range want {
			want[i] = i
		}
		slices.SortStableFunc(want, func(a, b int) int { return places[a] - places[b] })
		asked := 0
		got := Arrange(len(places), func(i int) int {
			if i != asked {
				t.Fatalf("seed %d: asked for %d, not for %d", seed, i, asked)
			}
			asked++
			return places[i]
		})
		if slices.IsSorted(places) {
			want = nil
		}
		sorted := slices.Clone(places)
		slices.Sort(sorted)
		if list := Arranged(places, func(p int) int { return p }); !slices.Equal(list, sorted) {
			t.Fatalf("seed %d: places %v arranged %v", seed, places, list)
		}
		if !slices.Equal(got, want) || asked != len(places) {
			t.Fatalf("seed %d: places %v: %v after %d questions, want %v", seed, places, got, asked, want)
		}
	}
}
