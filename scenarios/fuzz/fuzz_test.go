package fuzz_test

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"towtank/scenarios/fuzz"
	"towtank/scenarios/lang"
)

// small is a configuration whose seeds take little time.
func small(profile string) fuzz.Config { return fuzz.Config{Steps: 60, Nodes: 3, Profile: profile} }

// A scenario that is drawn is right, prints, and reads back as the same.
func TestGeneratedFilesReadBack(t *testing.T) {
	for _, profile := range fuzz.Profiles() {
		for seed := uint64(1); seed <= 5; seed++ {
			f, err := fuzz.Generate(seed, small(profile))
			if err != nil {
				t.Fatal(err)
			}
			text := f.Format()
			back, err := lang.Parse("seed", text)
			if err != nil {
				t.Fatalf("%s seed %d: %v\n%s", profile, seed, err, text)
			}
			if string(back.Format()) != string(text) {
				t.Errorf("%s seed %d: the file reads back as another", profile, seed)
			}
		}
	}
}

// The seeds of a fixed range find nothing, in every profile.
func TestSeeds(t *testing.T) {
	for _, profile := range fuzz.Profiles() {
		for seed := uint64(1); seed <= 4; seed++ {
			r, _ := fuzz.Try(seed, small(profile), false)
			if r.Failed() {
				t.Errorf("%s: %s\n%v\nreplay: towtank replay --seed %d%s", profile, r.Wrong, r.Findings, seed, r.Args)
			}
		}
	}
}

// hashes are those of a few seeds.
func hashes(t *testing.T) []string {
	t.Helper()
	var out []string
	for seed := uint64(1); seed <= 2; seed++ {
		r, _ := fuzz.Try(seed, fuzz.Config{Steps: 40, Nodes: 3, Profile: "all"}, seed == 2)
		out = append(out, r.Hash)
	}
	return out
}

const childVar = "TOWTANK_FUZZ_CHILD"

// The same seed gives the same hash in 20 runs, whatever GOMAXPROCS is, in other processes, and under
// the race detector if the test runs under it.
func TestSameHash(t *testing.T) {
	want := hashes(t)
	if os.Getenv(childVar) != "" {
		for _, h := range want {
			os.Stdout.WriteString("hash=" + h + "\n")
		}
		return
	}
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for i := range 20 {
		runtime.GOMAXPROCS(1 + i%2)
		if got := hashes(t); !slices.Equal(got, want) {
			t.Fatalf("run %d: got %v, want %v", i+1, got, want)
		}
	}
	for _, procs := range []string{"1", "2"} {
		c := exec.Command(os.Args[0], "-test.run", "^TestSameHash$", "-test.v")
		c.Env = append(os.Environ(), childVar+"=1", "GOMAXPROCS="+procs)
		data, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if got := hashLines(string(data)); !slices.Equal(got, want) {
			t.Errorf("another process, GOMAXPROCS=%s: got %v, want %v", procs, got, want)
		}
	}
}

func hashLines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if h, ok := strings.CutPrefix(strings.TrimSpace(line), "hash="); ok {
			out = append(out, h)
		}
	}
	return out
}

// failing has a mistake that stands in the scenario itself, among much that does not matter.
const failing = `option tunnel=vxlan
nodes n1 n2 n3
external ext
label node/n2 zone=a
pod default/a node=n1 app=x
pod default/b node=n2 app=x serve=8080/tcp
apply svc.yaml
for I in 1..3 {
  pod default/c$I node=n3 app=y
  step 3
}
settle
probe default/a -> default/b
agent n2 restart
settle
probe default/a -> default/b expect reject
advance 20s
-- svc.yaml --
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: x}, ports: [{port: 80, targetPort: 8080}]}
`

// What does not matter is left out: loops, options, nodes, objects, words of steps.
func TestShrink(t *testing.T) {
	f, err := lang.Parse("failing.scenario", []byte(failing))
	if err != nil {
		t.Fatal(err)
	}
	s, err := fuzz.Shrink(f, fuzz.ShrinkOptions{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	const want = `nodes n1 n2
pod default/a node=n1
pod default/b node=n2
settle
probe default/a -> default/b expect reject
`
	got := string(s.File.Format())
	if s.Finding.What != "expectation of probe" || s.Seed != 1 || len(s.File.Lines) > 5 || len(s.File.Files) > 0 {
		t.Errorf("%s, seed %d:\n%s\nwant something like\n%s", s.Finding.What, s.Seed, got, want)
	}
	text := fuzz.Text(s.File, s.Seed, &s.Finding, 4711, "")
	back, err := lang.Parse("small", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if seed, ok, err := fuzz.SeedOf(back); err != nil || !ok || seed != s.Seed {
		t.Errorf("the file says seed %d:\n%s", seed, text)
	}
	if run := fuzz.Do(back, fuzz.RunOptions{Seed: s.Seed}); len(run.Findings) == 0 {
		t.Errorf("the file does not fail:\n%s", text)
	}
}

// Nothing to shrink is an error, not a scenario.
func TestShrinkNothing(t *testing.T) {
	f, err := lang.Parse("passing.scenario", []byte("nodes n1\nsettle\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fuzz.Shrink(f, fuzz.ShrinkOptions{Seed: 1}); err == nil {
		t.Error("want an error")
	}
}

// Mistakes in a configuration are told with what is allowed.
func TestConfigMistakes(t *testing.T) {
	for _, c := range []fuzz.Config{{Steps: 1, Nodes: 3, Profile: "all"}, {Steps: 300, Nodes: 0, Profile: "all"}, {Steps: 300, Nodes: 3, Profile: "al"}} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), "allowed") && !strings.Contains(err.Error(), "known") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Results of campaigns join: a seed counts once, a sort of finding is told once.
func TestMerge(t *testing.T) {
	const lines = `{"v":1,"kind":"seed","seed":1,"steps":10,"virtual_ns":1000000000,"reached":["a"]}
{"v":1,"kind":"seed","seed":2,"steps":10,"findings":[{"what":"invariant 5","about":"x","line":3,"detail":"d"}],"reached":["b"]}
`
	const more = `{"v":1,"kind":"seed","seed":2,"steps":10,"findings":[{"what":"invariant 5","about":"x","line":3,"detail":"d"}]}
{"v":1,"kind":"seed","seed":3,"steps":10,"findings":[{"what":"invariant 5","about":"x","line":4,"detail":"e"}],"reached":["a","c"]}
{"v":1,"kind":"later"}
`
	s := fuzz.NewSummary()
	for _, text := range []string{lines, more} {
		if err := s.Merge("x", strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	if s.Seeds != 3 || s.Failed != 2 || len(s.Sorts()) != 1 || s.Sorts()[0].Seeds != 2 || len(s.Reached) != 3 {
		t.Errorf("%+v", s)
	}
	if err := s.Merge("y", strings.NewReader("no JSON\n")); err == nil || !strings.Contains(err.Error(), "y:1") {
		t.Errorf("a line that is no JSON: %v", err)
	}
}
