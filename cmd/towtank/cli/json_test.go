package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// record is what the tests read of a line of --json.
type record struct {
	Kind, File, Result, Detail, Text string
	Line, Failed                     int
	Errors                           []struct {
		Line int
		Text string
	}
}

func records(t *testing.T, out string) (list []record) {
	t.Helper()
	for line := range strings.Lines(out) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, r)
	}
	return list
}

// A file that cannot be read has a record that says why, as a consumer of --json does not see the standard error.
func TestJSONOfABrokenFile(t *testing.T) {
	d := dir(t, map[string]string{"a.scenario": broken, "b.scenario": good, "c.scenario": "# nothing\n"})
	code, out, errs := call("", "run", "--json", d)
	if code != 2 || !strings.Contains(errs, "a.scenario:2: ") {
		t.Errorf("status %d, stderr %q", code, errs)
	}
	list := records(t, out)
	first, last := list[0], list[len(list)-1]
	if first.Kind != "broken" || first.Result != "broken" || !strings.HasSuffix(first.File, "a.scenario") || len(first.Errors) != 2 ||
		first.Errors[0].Line != 2 || !strings.Contains(first.Errors[0].Text, `"podd"`) || first.Errors[1].Line != 3 {
		t.Errorf("the first record is %+v", first)
	}
	if last.Kind != "broken" || len(last.Errors) != 1 || !strings.Contains(last.Errors[0].Text, "no nodes") {
		t.Errorf("the last record is %+v", last)
	}
	gone := filepath.Join(d, "d.scenario")
	if err := os.Symlink("nowhere", gone); err != nil {
		t.Fatal(err)
	}
	_, out, _ = call("", "run", "--json", d)
	if list = records(t, out); list[len(list)-1].Kind != "broken" || list[len(list)-1].Errors[0].Line != 0 {
		t.Errorf("of a link to nowhere: %+v", list[len(list)-1])
	}
}

// A step that cannot be carried out has a record with the reason, and so has the end; text has it once, on the standard
// error.
func TestJSONOfAStepThatCannotBeDone(t *testing.T) {
	path := file(t, "nodes n1\npod default/a node=n1\ndelete egress nosuch\nsettle\nprobe default/a -> svc/default/x expect ok\nsettle\n")
	code, out, errs := call("", "run", "--json", path)
	if code != 2 || !strings.Contains(errs, `x.scenario:5: probe `) {
		t.Errorf("status %d, stderr %q", code, errs)
	}
	list := records(t, out)
	end, step := list[len(list)-1], list[len(list)-2]
	if step.Kind != "step" || step.Line != 5 || step.Result != "fail" || !strings.Contains(step.Detail, `"x" not found`) {
		t.Errorf("the step is %+v", step)
	}
	if end.Kind != "end" || end.Result != "fail" || end.Failed != 2 || len(end.Errors) != 2 || end.Errors[0].Line != 3 ||
		end.Errors[1].Line != 5 || !strings.Contains(end.Errors[1].Text, `"x" not found`) {
		t.Errorf("the end is %+v", end)
	}
	if _, out, _ = call("", "run", path); strings.Contains(out, ":5 ") {
		t.Errorf("as text:\n%s", out)
	}
}
