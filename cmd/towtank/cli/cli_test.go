package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"towtank/cmd/towtank/cli"
	"towtank/e2e/vswitchd"
)

// good is a scenario that passes; each test changes what it is about.
const good = `# Two Pods and a Service.
nodes n1 n2
external ext
pod default/client node=n1
pod default/web node=n2 app=web
apply web.yaml
settle
probe default/client -> svc/default/web expect ok backend=default/web
probe default/client -> 10.96.0.99:80 expect drop
-- web.yaml --
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

// unmet is the same, but for an expectation that does not hold, in line 8.
var unmet = strings.Replace(good, "expect ok backend=default/web", "expect ok backend=default/client", 1)

// broken has two mistakes, in lines 2 and 3.
const broken = "nodes n1\npodd default/a node=n1\nprobe default/a -> ext exepct ok\n"

// dir writes files and returns their directory.
func dir(t *testing.T, files map[string]string) string {
	t.Helper()
	d := t.TempDir()
	for name, text := range files {
		path := filepath.Join(d, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func file(t *testing.T, text string) string {
	t.Helper()
	return filepath.Join(dir(t, map[string]string{"x.scenario": text}), "x.scenario")
}

// call runs the command line with some standard input.
func call(stdin string, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = cli.Main(args, strings.NewReader(stdin), &o, &e)
	return code, o.String(), e.String()
}

func contains(t *testing.T, what, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s lacks %q:\n%s", what, w, text)
		}
	}
}

func TestRunPrintsTheResultOnly(t *testing.T) {
	path := file(t, good)
	code, out, errs := call("", "run", "--seed", "7", path)
	if code != 0 || errs != "" {
		t.Errorf("status %d, stderr %q", code, errs)
	}
	line := regexp.MustCompile(`^PASS sim seed=7 steps=8 virtual=\S+ wall=\S+ hash=[0-9a-f]{12}  \S+x\.scenario\n$`)
	if !line.MatchString(out) {
		t.Errorf("found %q, want %s", out, line)
	}
}

func TestVerboseShowsEveryStep(t *testing.T) {
	_, out, _ := call("", "run", "-v", file(t, good))
	contains(t, "stdout", out, ":2 ok nodes n1 n2\n", ":9 ok probe default/client -> 10.96.0.99:80 expect drop\n")
}

func TestUnmetExpectationShowsWhatWasSeenAndTheWay(t *testing.T) {
	path := file(t, unmet)
	code, out, errs := call("", "run", "--seed", "3", path)
	if code != 1 || errs != "" {
		t.Errorf("status %d, stderr %q", code, errs)
	}
	contains(t, "stdout", out,
		path+":8 FAIL probe default/client -> svc/default/web expect ok backend=default/client\n",
		"  want  ok backend=default/client\n", "  got   ok ", "backends=default/web:8080", "want backend=default/client",
		"  request\n", "    n1\n", "table 33 ServiceLB", "← Service default/web", "    n2\n", "  reply\n",
		"FAIL sim seed=3", "replay: towtank run --seed 3 "+path+"\n")
	if strings.Contains(out, " ok nodes") {
		t.Errorf("steps that held are shown without -v:\n%s", out)
	}
}

func TestBrokenFileNamesEveryLine(t *testing.T) {
	path := file(t, broken)
	code, out, errs := call("", "run", path)
	if code != 2 || out != "" {
		t.Errorf("status %d, stdout %q", code, out)
	}
	contains(t, "stderr", errs, path+":2: ", `"podd"`, `"pod"`, path+":3: ", `"expect"`)
}

func TestWhatOnlyTheRunShowsToBeWrong(t *testing.T) {
	path := file(t, "nodes n1\nsettle\nprobe default/ghost -> node/n1 expect ok\n")
	code, _, errs := call("", "run", path)
	if code != 2 || !strings.HasPrefix(errs, path+":3: ") {
		t.Errorf("status %d, stderr %q", code, errs)
	}
}

func TestDirectories(t *testing.T) {
	d := dir(t, map[string]string{
		"b/two.scenario": unmet, "a/one.scenario": good, "c/three.scenario": "backends netns\nnodes n1\n",
		"a/notes.txt": "", "a/testdata/x.scenario": broken, ".git/x.scenario": broken,
	})
	for _, jobs := range []string{"1", "4"} {
		code, out, errs := call("", "run", "--jobs", jobs, d)
		if code != 1 || errs != "" {
			t.Errorf("status %d, stderr %q", code, errs)
		}
		one, two, three := strings.Index(out, "PASS sim"), strings.Index(out, "FAIL sim"), strings.Index(out, "SKIP sim")
		if one < 0 || two < one || three < two {
			t.Errorf("results are not in the order of the files:\n%s", out)
		}
		contains(t, "stdout", out, "\n3 files: 1 passed, 1 failed, 1 skipped (sim, seed 1, ")
	}
	code, out, errs := call("", "run", filepath.Join(d, "a"), filepath.Join(d, "a", "testdata", "x.scenario"))
	if code != 2 {
		t.Errorf("status %d, want 2: a file is broken", code)
	}
	contains(t, "stdout", out, "2 files: 1 passed, 0 failed, 0 skipped, 1 not right")
	contains(t, "stderr", errs, "x.scenario:2: ")
}

func TestStandardInput(t *testing.T) {
	code, out, _ := call(unmet, "run", "-")
	if code != 1 {
		t.Errorf("status %d", code)
	}
	contains(t, "stdout", out, "stdin:8 FAIL ", "replay: towtank run --seed 1 - ")
}

func TestStatusOfCalls(t *testing.T) {
	skipped := file(t, "backends netns\nnodes n1\n")
	path := file(t, good)
	for _, c := range []struct {
		args []string
		code int
		errs string
	}{
		{[]string{"run", skipped}, 3, ""},
		{[]string{"run", "--backend", "cluster", path}, 3, "backend cluster is not available in this build"},
		{[]string{"run", "--backend", "ovsdumy", path}, 2, `did you mean "ovsdummy"?`},
		{[]string{"run", "no-such.scenario"}, 2, "no-such.scenario: no such file"},
		{[]string{"run", t.TempDir()}, 2, "there is no .scenario file below it"},
		{[]string{"run"}, 2, "towtank run: give files"},
		{[]string{"run", "--sede", "1", path}, 2, "towtank run: unknown flag: --sede; see towtank run --help"},
		{[]string{"run", "--seed", "x", path}, 2, "seed"},
		{[]string{"run", "--events", "e", path, path}, 2, "--events: want one scenario file, found 2"},
		{[]string{"rum", path}, 2, `unknown command "rum"; did you mean "run"?`},
		{[]string{"trace", path, "default/client"}, 2, "usage: towtank trace FILE FROM TO"},
		{[]string{"trace", path, "default/client", "-"}, 2, "redirection"},
		{[]string{"trace", path, "default/client", "exd"}, 2, `did you mean "ext"?`},
		{[]string{"trace", path, "default/ghost", "ext"}, 2, "default/ghost"},
		{[]string{"trace", "--line", "99", path, "default/client", "ext"}, 2, "--line 99"},
		{[]string{"dump", path, "n7"}, 2, `unknown node "n7"`},
		{[]string{"dump", path, "n1", "swtch"}, 2, `did you mean "switch"?`},
		{[]string{"fmt", "--check", file(t, broken)}, 2, ":2: "},
		{[]string{"--help"}, 0, ""},
		{[]string{"help", "run"}, 0, ""},
		{[]string{"language"}, 0, ""},
	} {
		code, _, errs := call("", c.args...)
		if code != c.code || !strings.Contains(errs, c.errs) {
			t.Errorf("towtank %s: status %d, stderr %q; want %d, %q", strings.Join(c.args, " "), code, errs, c.code, c.errs)
		}
	}
}

// TestJSON checks the keys that a consumer may rely on.
func TestJSON(t *testing.T) {
	looped := strings.Replace(unmet, "probe default/client -> 10.96.0.99:80 expect drop", "for X in a,b {\n  label node/n1 k=$X\n}", 1)
	code, out, _ := call("", "run", "--json", file(t, looped))
	if code != 1 {
		t.Errorf("status %d", code)
	}
	keys := map[string][]string{
		"step":      {"v", "kind", "file", "line", "index", "iter", "text", "t_ns", "result", "want", "got", "trace"},
		"invariant": {"v", "kind", "id", "node", "after", "result", "detail"},
		"end":       {"v", "kind", "file", "backend", "seed", "result", "steps", "failed", "t_ns", "wall_ms", "logHash", "faultsUnused", "replay"},
	}
	seen := map[string]int{}
	var failed, loop map[string]any
	for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		kind, _ := v["kind"].(string)
		seen[kind]++
		if keys[kind] == nil || v["v"] != 1.0 {
			t.Errorf("kind or version is not known: %s", line)
		}
		for _, k := range keys[kind] {
			if v[k] == nil {
				t.Errorf("%s lacks %s: %s", kind, k, line)
			}
		}
		if v["result"] == "fail" && kind == "step" {
			failed = v
		}
		if text, _ := v["text"].(string); strings.HasSuffix(text, "k=b") {
			loop = v
		}
	}
	if seen["step"] == 0 || seen["end"] != 1 {
		t.Errorf("kinds: %v", seen)
	}
	got, _ := failed["got"].(map[string]any)
	if got["verdict"] != "ok" || got["backends"].(map[string]any)["default/web:8080"] != 1.0 || len(failed["trace"].([]any)) < 10 {
		t.Errorf("the failed step is %v", failed)
	}
	if iter, _ := loop["iter"].(map[string]any); iter["X"] != "b" {
		t.Errorf("the step of the loop is %v", loop)
	}
}

// TestJSONWants checks that each expectation says what it wants, a stream how many it lost, and a fault that was not
// reached what it was.
func TestJSONWants(t *testing.T) {
	_, out, _ := call("", "run", "--json", file(t, `nodes n1
external ext
pod default/a node=n1
settle
mark
fail n1 flush
stream s ext -> node/n1 every=100ms
advance 1s
stream-stop s expect lost<=0 source=ext
expect-status pod default/a status.phase=Running
expect-event pod default/a reason=Nothing count=0
expect-writes n1 switch<=9 host=0
expect-objects n1 unit=service/default/b count=0
expect-dump n1 host lacks "99.0.0.0/8"
expect-clean n1
probe ext -> node/n1 expect ok source=ext
keep
`))
	want := map[string]string{
		"stream-stop": "lost<=0 source=ext", "expect-status": "status.phase=Running", "expect-event": "reason=Nothing count=0",
		"expect-writes": "switch<=9 host=0", "expect-objects": "unit=service/default/b count=0", "expect-dump": "host lacks 99.0.0.0/8",
		"expect-clean": "clean", "probe": "ok source=ext",
	}
	for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		var v struct {
			Kind, Text   string
			Result       string
			Want         map[string]string
			Got          map[string]any
			FaultsUnused []string
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		command, _, _ := strings.Cut(v.Text, " ")
		if v.Want["expect"] != want[command] {
			t.Errorf("%s: wants %q, want %q", v.Text, v.Want["expect"], want[command])
		}
		if lost, ok := v.Got["lost"]; command == "stream-stop" && (!ok || lost != 0.0 || v.Result != "pass") {
			t.Errorf("%s: %s", v.Text, line)
		}
		if v.Kind == "end" && (len(v.FaultsUnused) != 1 || !strings.Contains(v.FaultsUnused[0], "mode=refuse")) {
			t.Errorf("unused faults: %v", v.FaultsUnused)
		}
	}
}

func TestSameSeedSameEvents(t *testing.T) {
	path := file(t, good)
	logs := [2]string{}
	for i := range logs {
		name := filepath.Join(t.TempDir(), "events")
		if code, _, errs := call("", "run", "--events", name, path); code != 0 {
			t.Fatalf("status %d: %s", code, errs)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		logs[i] = string(data)
	}
	if logs[0] != logs[1] || strings.Count(logs[0], "\n") < 20 {
		t.Errorf("the logs have %d and %d bytes", len(logs[0]), len(logs[1]))
	}
}

func TestTraceOfADelivery(t *testing.T) {
	for _, args := range [][]string{
		{"default/client", "svc/default/web:80/tcp"}, {"default/client", "->", "svc/default/web"}, {"default/client -> svc/default/web"},
	} {
		code, out, errs := call("", append([]string{"trace", file(t, good)}, args...)...)
		if code != 0 || errs != "" {
			t.Errorf("%q: status %d, stderr %q", args, code, errs)
		}
		contains(t, "stdout", out, "trace default/client -> svc/default/web", "← Service default/web", "table 20", "\nverdict: ok ", "backends=default/web:8080")
	}
}

func TestTraceOfADropSaysWhere(t *testing.T) {
	code, out, _ := call("", "trace", file(t, good), "default/client", "10.96.0.99:80")
	if code != 0 {
		t.Errorf("status %d", code)
	}
	last := out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]
	if !regexp.MustCompile(`^verdict: drop.*, on n1, table 33 ServiceLB: .*nw_dst=10.96.0.0/16 actions=drop$`).MatchString(strings.TrimSpace(last)) || !strings.Contains(out, "✗") {
		t.Errorf("the drop is not shown:\n%s", out)
	}
}

func TestTraceBeforeALine(t *testing.T) {
	path := file(t, good)
	_, before, _ := call("", "trace", "--line", "5", path, "default/client", "10.96.0.2:80")
	_, after, _ := call("", "trace", "--line", "7", path, "default/client", "10.96.0.2:80")
	if strings.Contains(before, "verdict: ok") || !strings.Contains(after, "verdict: ok") {
		t.Errorf("before the Service:\n%safter it:\n%s", before, after)
	}
}

func TestTraceTellsWhatFailedBefore(t *testing.T) {
	path := file(t, unmet)
	want := path + ":8 FAIL probe default/client -> svc/default/web expect ok backend=default/client\ntowtank run --seed 3 " + path + " shows them in full\n"
	code, out, errs := call("", "trace", "--seed", "3", path, "default/client", "svc/default/web")
	if code != 0 || errs != want || !strings.Contains(out, "verdict: ok") {
		t.Errorf("status %d, stderr %q, stdout:\n%s", code, errs, out)
	}
}

// After a change that the API refused the scenario goes on, and so there is something to look at; the exit status is
// that of towtank run.
func TestLookAfterARefusedChange(t *testing.T) {
	path := file(t, strings.Replace(unmet, "settle\n", "delete egress nosuch\nsettle\nfor X in a,b {\n  probe default/client -> default/web expect drop\n}\n", 1))
	told := path + ":7 FAIL delete egress nosuch\n" + path + ":10 FAIL probe default/client -> default/web expect drop\n" +
		path + ":12 FAIL probe default/client -> svc/default/web expect ok backend=default/client\ntowtank run " + path + " shows them in full\n"
	for _, c := range []struct {
		want string
		args []string
	}{
		{"\nverdict: ok ", []string{"trace", path, "default/client", "svc/default/web"}},
		{"table=33, ", []string{"dump", path, "n1", "switch"}},
		{`"result":"info"`, []string{"trace", "--json", path, "default/client", "svc/default/web"}},
	} {
		code, out, errs := call("", c.args...)
		if code != 2 || errs != told {
			t.Errorf("%v: status %d, stderr %q, want %q", c.args, code, errs, told)
		}
		contains(t, "stdout", out, c.want)
	}
}

// What is wrong with the command line is not looked for in the file.
func TestLookNamesTheArgument(t *testing.T) {
	path := file(t, good)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"trace", path, "default/clint", "ext"}, `trace default/clint -> ext: pod default/clint is not known; did you mean "default/client"?`},
		{[]string{"trace", path, "default/client", "svc/default/wbe"}, `trace default/client -> svc/default/wbe: services "wbe" not found; did you mean "default/web"?`},
		{[]string{"trace", path, "default/client", "exd"}, `trace default/client -> exd: unknown external host "exd"; did you mean "ext"? allowed: ext`},
		{[]string{"dump", path, "n7", "host"}, `dump n7 host: unknown node "n7"; did you mean "n1"? allowed: n1, n2`},
		{[]string{"dump", path, "owner/1.2.3.4"}, `dump owner/1.2.3.4: owner/1.2.3.4: want exactly one node that holds the address, found 0`},
		{[]string{"trace", "--line", "0", path, "default/client", "ext"}, "--line: found 0, allowed: 1 and more"},
		{[]string{"dump", "--line", "-3", path, "n1"}, "--line: found -3, allowed: 1 and more"},
	} {
		if code, out, errs := call("", c.args...); code != 2 || out != "" || errs != c.want+"\n" {
			t.Errorf("%v: status %d, stderr %q, want %q", c.args, code, errs, c.want)
		}
	}
}

func TestDump(t *testing.T) {
	path := file(t, good)
	_, all, _ := call("", "dump", path, "n1")
	_, sw, _ := call("", "dump", path, "n1", "switch")
	contains(t, "dump", all, "# n1: store", "\nService default/web")
	contains(t, "dump switch", sw, "table=33, ", "actions=")
	if strings.Contains(sw, "# n1: host") {
		t.Errorf("the dump of the switch has the host:\n%s", sw)
	}
}

func TestFmt(t *testing.T) {
	untidy := strings.Replace(good, "nodes n1 n2", "nodes   n1  n2", 1)
	path := file(t, untidy)
	if code, out, _ := call(untidy, "fmt"); code != 0 || out != good {
		t.Errorf("status %d, found:\n%s", code, out)
	}
	if code, out, _ := call("", "fmt", "--check", path); code != 1 || out != filepath.ToSlash(path)+"\n" {
		t.Errorf("--check: status %d, found %q", code, out)
	}
	_, out, _ := call("", "fmt", "-d", path)
	contains(t, "diff", out, "\n-nodes   n1  n2\n", "\n+nodes n1 n2\n", "\n external ext\n")
	if code, out, errs := call("", "fmt", "-w", path); code != 0 || out+errs != "" {
		t.Errorf("-w: status %d, found %q", code, out+errs)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != good {
		t.Errorf("the file is now %v\n%s", err, data)
	}
	if code, out, _ := call("", "fmt", "--check", path); code != 0 || out != "" {
		t.Errorf("--check after -w: status %d, found %q", code, out)
	}
}

// A change that the API refuses is told with file and line, and what follows it in the scenario still runs; the
// scenario did not run as it is written, so the exit status is 2.
func TestRefusedChangeDoesNotEndTheScenario(t *testing.T) {
	refused := strings.Replace(good, "settle\n", "delete egress nosuch\nsettle\nprobe default/client -> default/web expect drop\n", 1)
	code, out, errs := call("", "run", file(t, refused))
	if code != 2 {
		t.Errorf("exit status %d, want 2", code)
	}
	contains(t, "the output", out, `x.scenario:7 FAIL delete egress nosuch`, `"nosuch" not found`, `x.scenario:9 FAIL probe default/client -> default/web expect drop`)
	contains(t, "standard error", errs, `x.scenario:7: delete egress nosuch: `)
}

// needOVS fails, or on a developer's machine skips, where Open vSwitch is not installed.
func needOVS(t *testing.T) {
	if err := vswitchd.Available(); err != nil {
		if os.Getenv("TOWTANK_OVS") == "1" {
			t.Fatal(err)
		}
		t.Skip(err) // a developer's machine; CI fails above
	}
}

// The simulator and Open vSwitch's code do the same with the good scenario. Where a line runs on one of them only,
// what follows differs: first what is on a node, and without a settle what a probe experiences.
func TestDiff(t *testing.T) {
	needOVS(t)
	code, out, errs := call("", "diff", file(t, good))
	if code != 0 || !strings.Contains(out, "no difference between sim and ovsdummy") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
	for _, c := range []struct {
		change string
		want   []string
	}{
		{"[sim] delete service default/web\nsettle\n", []string{":8 differs: dump n1 switch", "only on sim:", "only on ovsdummy:", "nw_dst=10.96.0.2,tp_dst=80"}},
		{"settle\n[sim] host n2 : ip addr del 172.18.0.12/16 dev eth0\nprobe default/client -> node/n2 expect ok\n", []string{
			":9 differs: probe default/client -> node/n2 expect ok", "verdict    drop", "ok", "on sim:", "on ovsdummy:"}},
	} {
		code, out, errs := call("", "diff", file(t, strings.Replace(good, "settle\n", c.change, 1)))
		if code != 1 {
			t.Errorf("exit status %d, want 1\n%s%s", code, out, errs)
		}
		contains(t, "the output", out, c.want...)
	}
	if code, _, errs := call("", "diff", "--backend", "sim", file(t, good)); code != 2 || !strings.Contains(errs, "ovsdummy") {
		t.Errorf("--backend sim: exit status %d\n%s", code, errs)
	}
}
