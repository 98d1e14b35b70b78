package cli_test

import (
	"os"
	"path/filepath"
	"testing"
)

// What makes no sense is refused with what was found, before anything runs.
func TestRefused(t *testing.T) {
	d := dir(t, map[string]string{
		"x.scenario": good, "comment.scenario": "# nothing yet\n", "empty.scenario": "",
		"seed.scenario": "# seed=99999999999999999999999\nnodes n1\nsettle\n", "r.jsonl": "{}\n",
	})
	at := func(name string) string { return filepath.Join(d, name) }
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", at("empty.scenario")}, "no nodes"},
		{[]string{"run", at("comment.scenario")}, "no nodes"},
		{[]string{"run", "-"}, "stdin: no nodes"},
		{[]string{"run", "--jobs", "0", at("x.scenario")}, "--jobs: found 0"},
		{[]string{"run", "--jobs", "-3", at("x.scenario")}, "--jobs: found -3"},
		{[]string{"run", "--events", at("x.scenario"), at("x.scenario")}, "would be overwritten"},
		{[]string{"trace", "--line", "-1", at("x.scenario"), "default/client", "ext"}, "--line: found -1"},
		{[]string{"run", "--seed", "-1", at("x.scenario")}, "towtank run: --seed: found \"-1\", allowed: a number, 0 to 18446744073709551615; see towtank run --help\n"},
		{[]string{"run", "-v=often", at("x.scenario")}, `--verbose: found "often", allowed: true, false`},
		{[]string{"fuzz", "--for", "soon"}, `--for: found "soon", allowed: a duration`},
		{[]string{"diff", d}, "found a directory, allowed: one scenario file"},
		{[]string{"diff", at("x.scenario"), at("x.scenario")}, "towtank diff: found 2 arguments, allowed: one FILE"},
		{[]string{"dump", d, "n1"}, "found a directory, allowed: one scenario file"},
		{[]string{"shrink", "--within", "-1s", at("x.scenario")}, "--within: found -1s"},
		{[]string{"fuzz", "--for", "0s"}, "--for: found 0s"},
		{[]string{"fuzz", "--seeds", "1..1", "--out", at("x.scenario")}, "--out: found the file"},
		{[]string{"fuzz", "merge", at("r.jsonl")}, "r.jsonl:1: kind: found none"},
		{[]string{"replay", at("x.scenario"), "--profile", "egress"}, "--profile: is for the scenario that --seed draws"},
		{[]string{"replay", at("seed.scenario")}, `seed.scenario:1: seed: found "99999999999999999999999"`},
		{[]string{"replay", at("x.scenario"), "--dump", "n1 frob"}, `--dump: `},
	} {
		code, out, errs := call("", c.args...)
		if code != 2 || out != "" {
			t.Errorf("%v: exit status %d, want 2\n%s", c.args, code, out)
		}
		contains(t, "the error", errs, c.want)
	}
	if data, err := os.ReadFile(at("x.scenario")); err != nil || string(data) != good {
		t.Errorf("the scenario is not as it was: %v", err)
	}
}

// The last seed there is ends a campaign.
func TestFuzzEndsAtTheLastSeed(t *testing.T) {
	code, out, errs := call("", "fuzz", "--steps", "30", "--nodes", "1", "--seeds", "18446744073709551615..18446744073709551615")
	if code != 0 {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
	contains(t, "the account", out, "1 seed")
}
