package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var hashText = regexp.MustCompile(`hash=[0-9a-f]{16}`)

// A few small seeds find nothing; their results are kept as lines, and join.
func TestFuzz(t *testing.T) {
	d := t.TempDir()
	lines := filepath.Join(d, "r.jsonl")
	corpus := filepath.Join(d, "corpus.txt")
	code, out, errs := call("", "fuzz", "--seeds", "1..3", "--steps", "40", "--jobs", "1", "--json", lines, "--corpus", corpus)
	if code != 0 {
		t.Fatalf("exit status %d\n%s%s", code, out, errs)
	}
	contains(t, "the summary", out, "3 seeds, 0 failed", "simulated hours", "reached")
	if data, err := os.ReadFile(corpus); err != nil || !strings.HasPrefix(string(data), "1 --steps 40  # ") {
		t.Errorf("corpus: %v\n%s", err, data)
	}
	code, out, _ = call("", "fuzz", "merge", lines, lines)
	if code != 0 {
		t.Errorf("merge: exit status %d", code)
	}
	contains(t, "the merged summary", out, "3 seeds, 0 failed")
}

// A wrong call is told with what is allowed, with exit status 2.
func TestFuzzMistakes(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"fuzz", "--seeds", "5..1"}, "allowed: A..B"},
		{[]string{"fuzz", "--seeds", "x"}, "allowed: A..B"},
		{[]string{"fuzz", "--steps", "3"}, "steps: found 3, allowed"},
		{[]string{"fuzz", "--nodes", "100"}, "nodes: found 100, allowed 1 to"},
		{[]string{"fuzz", "--profile", "egres"}, `did you mean "egress"`},
		{[]string{"fuzz", "--jobs", "0"}, "--jobs: found 0"},
		{[]string{"fuzz", "--shrink"}, "--out"},
		{[]string{"fuzz", "more"}, "unknown command"},
		{[]string{"fuzz", "merge", none}, "no such file"},
		{[]string{"replay"}, "--seed N"},
		{[]string{"replay", none}, "no such file"},
		{[]string{"replay", "--seed", "1", "--step", "-1"}, "--step: found -1"},
		{[]string{"replay", "--seed", "1", "--trace", "a ->"}, "trace"},
		{[]string{"shrink"}, "--seed N"},
	} {
		code, out, errs := call("", tc.args...)
		if code != 2 || !strings.Contains(errs, tc.want) {
			t.Errorf("%v: exit status %d, want 2 and %q\n%s%s", tc.args, code, tc.want, out, errs)
		}
	}
}

// The same seed, and the file that it draws, run the same way: one hash.
func TestReplay(t *testing.T) {
	small := []string{"replay", "--seed", "3", "--steps", "40"}
	code, first, errs := call("", small...)
	if code != 0 {
		t.Fatalf("exit status %d\n%s%s", code, first, errs)
	}
	want := hashText.FindString(first)
	if _, again, _ := call("", small...); want == "" || hashText.FindString(again) != want {
		t.Errorf("two runs: %s and %s", want, again)
	}
	_, text, _ := call("", append(small, "--print")...)
	if _, out, _ := call("", "replay", file(t, text)); !strings.Contains(out, "seed=3") {
		t.Errorf("the file does not run with its seed:\n%s", out)
	}
}

// A run can be stopped after any step, to look there.
func TestReplayStep(t *testing.T) {
	path := file(t, good)
	code, out, errs := call("", "replay", path, "--step", "4", "--dump", "n1 store", "--trace", "default/client -> default/web")
	if code != 0 {
		t.Fatalf("exit status %d\n%s%s", code, out, errs)
	}
	contains(t, "what is shown", out, "dump n1 store", "trace default/client")
	if strings.Contains(out, "svc/default/web") {
		t.Errorf("it did not stop:\n%s", out)
	}
	_, out, _ = call("", "replay", path, "--step", "4")
	contains(t, "the result", out, "steps=4")
}

// A failing file is made small; the result fails in the same way, and says how.
func TestShrink(t *testing.T) {
	small := filepath.Join(t.TempDir(), "small.scenario")
	code, out, errs := call("", "shrink", file(t, unmet), "-o", small)
	if code != 0 {
		t.Fatalf("exit status %d\n%s%s", code, out, errs)
	}
	data, err := os.ReadFile(small)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "the file", string(data), "# expectation of probe", "# seed=1", "expect ok backend=default/client")
	if strings.Contains(string(data), "10.96.0.99") {
		t.Errorf("what comes after the failure is still there:\n%s", data)
	}
	if code, _, _ := call("", "run", small); code != 1 {
		t.Errorf("the small file: exit status %d, want 1", code)
	}
	if code, _, errs := call("", "shrink", file(t, good)); code != 1 || !strings.Contains(errs, "nothing fails") {
		t.Errorf("a file that passes: exit status %d: %s", code, errs)
	}
}
