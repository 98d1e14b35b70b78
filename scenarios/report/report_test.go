package report_test

import (
	"strings"
	"testing"
	"time"

	"towtank/scenarios"
	"towtank/scenarios/report"
)

var (
	failed = scenarios.Step{
		File: "x.scenario", Line: 4, Index: 3, Iter: map[string]string{"N": "n1", "A": "x"}, Text: "probe a -> b", Time: time.Second,
		Outcome: scenarios.Fail, Want: map[string]string{"expect": "ok source=10.0.0.1"},
		Got: scenarios.Got{Verdict: "drop", Backends: map[string]int{"default/a:80": 2}}, Text2: "want ok, got drop",
		Trace: []scenarios.TraceLine{
			{Node: "n1", Where: "table 0 Root", Text: "cookie=0x1f, table=0, priority=200,ip actions=goto_table:10", Owner: "host"},
			{Node: "n1", Where: "table 20 UnSNAT", Text: "cookie=0x1f, table=20, priority=0 actions=goto_table:21", Owner: "host"},
			{Node: "n1", Where: "table 33 ServiceLB", Text: "cookie=0x2f, table=33, priority=1 actions=group:7", Owner: "Service default/web"},
			{Node: "n2", Where: "local", Text: "delivered: udp 1 -> 2 {tcp 3 -> 4 [SYN]}"},
			{Node: "b", Where: "local", Text: "delivered: tcp 3 -> 4 [SYN]"},
			{Node: "b", Where: "route", Text: "no route", Drop: true},
		},
	}
	broken = scenarios.Invariant{ID: 3, Node: "n1", After: 4, Detail: "172.18.0.50 is on n1 and n2"}
	end    = scenarios.End{
		File: "x.scenario", Backend: "sim", Seed: 9, Outcome: scenarios.Fail, Steps: 4, Failed: 2, Time: 61*time.Second + 123*time.Millisecond,
		Wall: 4567 * time.Microsecond, LogHash: "0123456789abcdef", FaultsUnused: []string{"n1 switch"}, Replay: "towtank run --seed 9 x.scenario",
	}
)

func tell(o scenarios.Observer) {
	o.Step(scenarios.Step{File: "x.scenario", Line: 1, Text: "nodes n1", Outcome: scenarios.Pass})
	o.Step(failed)
	o.Invariant(broken)
	o.Invariant(scenarios.Invariant{ID: 1, Node: "n1", After: 4, OK: true})
	o.End(end)
}

func TestText(t *testing.T) {
	var b strings.Builder
	tell(&report.Text{W: &b})
	want := `x.scenario:4 FAIL probe a -> b  # A=x N=n1
  want  ok source=10.0.0.1
  got   drop backends=default/a:80×2
  want ok, got drop
  request
    n1
      table 0 Root        priority=200,ip actions=goto_table:10
      table 33 ServiceLB  priority=1 actions=group:7  ← Service default/web
    n2
      local               delivered: udp 1 -> 2 {tcp 3 -> 4 [SYN]}
    b
      local               delivered: tcp 3 -> 4 [SYN]
  reply
    b
    ✗ route               no route
x.scenario:4 FAIL invariant 3 on n1: an Egress IP is held once, and where it should be
  172.18.0.50 is on n1 and n2
x.scenario: note: not every effect that this fault was for came: n1 switch
FAIL sim seed=9 steps=4 virtual=1m1.1s wall=5ms hash=0123456789ab  x.scenario
replay: towtank run --seed 9 x.scenario
`
	if b.String() != want {
		t.Errorf("found:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestTextShowsNoMoreThanAsked(t *testing.T) {
	var b strings.Builder
	o := &report.Text{W: &b, Max: 1}
	o.Step(failed)
	o.Step(failed)
	o.Step(failed)
	if strings.Count(b.String(), "FAIL") != 1 || strings.Count(b.String(), "further failures") != 1 {
		t.Errorf("found:\n%s", b.String())
	}
}

func TestColours(t *testing.T) {
	var b strings.Builder
	(&report.Text{W: &b, Color: true}).Step(failed)
	if !strings.Contains(b.String(), "\x1b[31;1mFAIL\x1b[0m") {
		t.Errorf("found:\n%q", b.String())
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	o := &report.JSON{W: &b}
	tell(o)
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	want := []string{
		`{"v":1,"kind":"step","file":"x.scenario","line":1,"index":0,"iter":{},"text":"nodes n1","t_ns":0,"result":"pass","want":{},"got":{},"trace":[]}`,
		`{"v":1,"kind":"step","file":"x.scenario","line":4,"index":3,"iter":{"A":"x","N":"n1"},"text":"probe a -> b","t_ns":1000000000,"result":"fail",` +
			`"want":{"expect":"ok source=10.0.0.1"},"got":{"verdict":"drop","backends":{"default/a:80":2}},"detail":"want ok, got drop","trace":[{"node":"n1"`,
		`{"v":1,"kind":"invariant","file":"x.scenario","id":3,"node":"n1","after":4,"result":"fail","detail":"172.18.0.50 is on n1 and n2"}`,
		`{"v":1,"kind":"invariant","file":"x.scenario","id":1,"node":"n1","after":4,"result":"pass","detail":""}`,
		`{"v":1,"kind":"end","file":"x.scenario","backend":"sim","seed":9,"result":"fail","steps":4,"failed":2,"t_ns":61123000000,"wall_ms":4,` +
			`"logHash":"0123456789abcdef","faultsUnused":["n1 switch"],"replay":"towtank run --seed 9 x.scenario"}`,
	}
	if len(lines) != len(want) {
		t.Fatalf("found %d lines, want %d", len(lines), len(want))
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("found %s\nwant  %s", lines[i], want[i])
		}
	}
}
