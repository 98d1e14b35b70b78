package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExamplesWork runs the examples of --help, in a copy of the tour: what people try first must work. (All files together run in
// package scenarios.) Left out are those of other programs, of files that only their user has, and of other backends than
// the simulator.
func TestExamplesWork(t *testing.T) {
	clone := t.TempDir()
	if err := os.CopyFS(filepath.Join(clone, "scenarios/tour"), os.DirFS("../../../scenarios/tour")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(clone)
	ran := map[string]bool{}
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			example, _, _ := strings.Cut(strings.TrimSpace(line), "   ") // then says what it is for
			args, filter := words(example)
			if len(args) == 0 || ran[example] || slices.Contains([]string{"diff", "fuzz", "shrink"}, args[0]) || strings.Contains(example, "failing/") {
				continue
			}
			ran[example] = true
			t.Run(example, func(t *testing.T) { tryExample(t, args, filter) })
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(newRoot(&terminal{}))
	if len(ran) < 15 {
		t.Errorf("found %d examples: %v", len(ran), ran)
	}
}

// words takes an example apart as a shell would: the arguments of towtank, none if that is not what it calls, and the
// pattern of a grep behind it.
func words(example string) (args []string, filter string) {
	example, _, _ = strings.Cut(example, " > ")
	for i, part := range strings.Split(example, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	if len(args) == 0 || args[0] != "towtank" {
		return nil, ""
	}
	if i := slices.Index(args, "|"); i >= 0 {
		if args[i+1] == "grep" {
			filter = args[i+2]
		}
		args = args[:i]
	}
	return args[1:], filter
}

func tryExample(t *testing.T, args []string, filter string) {
	var out, errs bytes.Buffer
	if code := Main(args, strings.NewReader(""), &out, &errs); code != exitOK || errs.Len() > 0 {
		t.Errorf("exit status %d, standard error %q", code, errs.String())
	}
	// Files that ship are formatted: fmt has nothing to say of them.
	if out.Len() == 0 != (args[0] == "fmt") || !strings.Contains(out.String(), filter) {
		t.Errorf("printed %d bytes; want something with %q\n%.1000s", out.Len(), filter, out.String())
	}
}
