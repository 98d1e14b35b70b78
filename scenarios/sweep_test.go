package scenarios

import (
	"os"
	"path/filepath"
	"testing"

	"towtank/scenarios/lang"
)

// The agent dies before and after each of its effects, and is started again: nobody may be able to tell
// afterwards.
func TestKillSweep(t *testing.T) {
	name := filepath.Join("restart", "kill-sweep.scenario")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := lang.Parse(name, data)
	if err != nil {
		t.Fatal(err)
	}
	for seed := uint64(1); seed <= 3; seed++ {
		sweepAll(t, f, seed)
	}
}

func sweepAll(t *testing.T, f *lang.File, seed uint64) {
	t.Helper()
	bad := 0
	runs, err := KillSweep(f, seed, 1, func(s Sweep) {
		if len(s.Problems) == 0 {
			return
		}
		if bad++; bad > 8 {
			t.Fail()
			return
		}
		t.Errorf("%s: effect %d, %s:", s.Node, s.Position, s.Mode)
		for i, p := range s.Problems {
			if i == 8 {
				t.Logf("  … %d more", len(s.Problems)-i)
				break
			}
			t.Logf("  %s", p)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if runs < 100 {
		t.Errorf("only %d runs: the sweep covers too little", runs)
	}
	t.Logf("seed %d: %d runs, %d with problems", seed, runs, bad)
}
