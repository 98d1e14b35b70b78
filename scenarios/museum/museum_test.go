package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every mutant applies to the code as it is, and there are enough of them, of all areas.
func TestMutantsApply(t *testing.T) {
	all, err := load("mutants")
	if err != nil {
		t.Fatal(err)
	}
	areas := map[string]int{}
	for _, m := range all {
		areas[m.area]++
		if _, err := m.mutate(filepath.Join("..", "..")); err != nil {
			t.Error(err)
		}
	}
	if len(all) < 30 {
		t.Errorf("%d mutants, want 30 and more", len(all))
	}
	for area := range directories {
		if areas[area] == 0 {
			t.Errorf("no mutant of area %s", area)
		}
	}
}

// A mutant whose text is not in the code any more is told by its name, and so is a mistake in a file.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("a.go", "package a\n")
	for text, want := range map[string]string{
		"bug: 1\ncause: x\nfile: a.go\n-- old --\nfunc gone() {}\n-- new --\n":       "0 times, not once",
		"bug: 1\ncause: x\nfile: a.go\n-- old --\npackage a\n-- new --\npackage {\n": "with the bug in it",
		"bug: one\n":        "bug:",
		"colour: blue\n":    "allowed",
		"bug: 1\nfile: a\n": "are needed",
	} {
		m, err := read(write("m.txtar", text))
		if err == nil {
			_, err = m.mutate(dir)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "m.txtar") {
			t.Errorf("%q: %v, want something with %q", text, err, want)
		}
	}
}
