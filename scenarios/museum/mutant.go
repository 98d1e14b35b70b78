package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"
)

// mutant is one bug that others have had, brought into our code: a text in one file and what stands in
// its place.
type mutant struct {
	path string
	bug  int    // its number in the log of field bugs
	area string // Egress, Services, Pods, OVS, Restart
	// cause says what is wrong, profile which seeds are likely to meet it.
	cause, file, profile string
	// survives says why nothing catches it; "": it has to be caught.
	survives string
	old, new string
}

// load reads the mutants of a directory, sorted by bug.
func load(dir string) ([]*mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		return nil, err
	}
	var out []*mutant
	for _, p := range paths {
		m, err := read(p)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: there are no mutants", dir)
	}
	slices.SortFunc(out, func(a, b *mutant) int { return a.bug - b.bug })
	return out, nil
}

func read(path string) (*mutant, error) {
	a, err := txtar.ParseFile(path)
	if err != nil {
		return nil, err
	}
	m := &mutant{path: path, profile: "all"}
	for n, line := range strings.Split(strings.TrimSpace(string(a.Comment)), "\n") {
		key, value, ok := strings.Cut(line, ": ")
		switch {
		case !ok:
			return nil, fmt.Errorf("%s:%d: want KEY: VALUE, found %q", path, n+1, line)
		case key == "bug":
			if m.bug, err = strconv.Atoi(value); err != nil {
				return nil, fmt.Errorf("%s:%d: bug: %w", path, n+1, err)
			}
		default:
			field := map[string]*string{"area": &m.area, "cause": &m.cause, "file": &m.file, "profile": &m.profile, "survives": &m.survives}[key]
			if field == nil {
				return nil, fmt.Errorf("%s:%d: found %q, allowed: bug, area, cause, file, profile, survives", path, n+1, key)
			}
			*field = value
		}
	}
	for _, f := range a.Files {
		text := strings.TrimSuffix(string(f.Data), "\n")
		switch f.Name {
		case "old":
			m.old = text
		case "new":
			m.new = text
		default:
			return nil, fmt.Errorf("%s: found file %q, allowed: old, new", path, f.Name)
		}
	}
	if m.bug == 0 || m.file == "" || m.old == "" || m.cause == "" {
		return nil, fmt.Errorf("%s: bug, cause, file and the file old are needed", path)
	}
	return m, nil
}

// mutate returns the text of the file with the bug in it. A text that is not there, or there twice, is
// an error: the code was changed, and the mutant has to follow.
func (m *mutant) mutate(root string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	if n := strings.Count(string(data), m.old); n != 1 {
		return nil, fmt.Errorf("%s: the old text is in %s %d times, not once: adapt the mutant", m.path, m.file, n)
	}
	out := strings.Replace(string(data), m.old, m.new, 1)
	if _, err := parser.ParseFile(token.NewFileSet(), m.file, out, parser.SkipObjectResolution); err != nil {
		return nil, fmt.Errorf("%s: with the bug in it: %w", m.path, err)
	}
	return []byte(out), nil
}
