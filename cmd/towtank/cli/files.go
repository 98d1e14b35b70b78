package cli

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"towtank/scenarios/lang"
)

// Suffix is how the names of scenario files end.
const suffix = ".scenario"

// stdin is the argument that stands for the standard input, and stdinName its name in messages.
const (
	stdin     = "-"
	stdinName = "stdin"
)

// findFiles returns the scenario files that arguments name: files as they are, of directories all
// *.scenario below, sorted, but for those in directories named testdata or beginning with a dot.
func findFiles(args []string) ([]string, error) {
	var out []string
	for _, a := range args {
		if a == stdin {
			out = append(out, a)
			continue
		}
		info, err := os.Stat(a)
		if err != nil {
			return nil, &status{exitWrong, err}
		}
		if !info.IsDir() {
			out = append(out, a)
			continue
		}
		found, err := below(a)
		if err != nil {
			return nil, &status{exitWrong, err}
		}
		if len(found) == 0 {
			return nil, wrongf("%s: there is no %s file below it", a, suffix)
		}
		out = append(out, found...)
	}
	return out, nil
}

func below(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, suffix):
			out = append(out, path)
		}
		return nil
	})
	slices.Sort(out)
	return out, err
}

// read returns the text of a file or of the standard input, and its name in messages.
func (t *terminal) read(path string) (name string, data []byte, err error) {
	if path == stdin {
		data, err = io.ReadAll(t.in)
	} else {
		data, err = os.ReadFile(path)
	}
	return nameOf(path), data, err
}

// nameOf is the name of a file in messages.
func nameOf(path string) string {
	if path == stdin {
		return stdinName
	}
	return filepath.ToSlash(path)
}

// parse reads a scenario. The error is of exit status 2, and names file and line.
func (t *terminal) parse(path string) (*lang.File, error) {
	if info, err := os.Stat(path); path != stdin && err == nil && info.IsDir() {
		return nil, wrongf("%s: found a directory, allowed: one scenario file", path)
	}
	name, data, err := t.read(path)
	if err != nil {
		return nil, &status{exitWrong, err}
	}
	f, err := lang.Parse(name, data)
	if err != nil {
		return nil, &status{exitWrong, err}
	}
	// Without nodes there is nothing that could run, and nothing that could fail: most likely a file that was not
	// written to its end, or an empty pipe.
	if !slices.ContainsFunc(f.Lines, func(l lang.Line) bool { _, ok := l.Step.(lang.Nodes); return ok }) {
		return nil, wrongf("%s: no nodes: found %d lines without the command nodes NAME…", name, strings.Count(string(data), "\n"))
	}
	return f, nil
}

// withLast returns the file with the lines up to a number (0: all), and then one more command. The
// error names the command.
func withLast(f *lang.File, upTo int, command string) (*lang.File, error) {
	step, err := lang.ParseStep(command)
	if err != nil {
		return nil, wrongf("%s", strings.TrimPrefix(err.Error(), "step:1: "))
	}
	g := *f
	g.Lines = slices.Clone(f.Lines)
	last := 0
	for i := range g.Lines {
		if upTo > 0 && g.Lines[i].Number > upTo {
			g.Lines = g.Lines[:i]
			break
		}
		last = g.Lines[i].Number
	}
	if upTo > 0 && upTo > last && len(g.Lines) == len(f.Lines) {
		return nil, wrongf("--line %d: %s has commands up to line %d only", upTo, f.Name, last)
	}
	// No line of the file has the number of the command, so that errors of it can be told from others.
	g.Lines = append(g.Lines, lang.Line{Number: lastNumber(f.Lines) + 1, Step: step})
	if err := g.Check(); err != nil {
		return nil, notOfTheFile(err, &g)
	}
	return &g, nil
}

// lastNumber is the highest number that a line has, also in a loop.
func lastNumber(list []lang.Line) (n int) {
	for i := range list {
		n = max(n, list[i].Number)
		if list[i].Loop != nil {
			n = max(n, lastNumber(list[i].Loop.Body))
		}
	}
	return n
}

// writeFile writes a result.
func writeFile(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return &status{exitWrong, err}
	}
	return nil
}
