package fuzz

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"towtank/scenarios/lang"
)

// Text returns a failing scenario as a file: what fails and how to see it stands in comments above the
// steps. args are the options that the scenario was drawn with, origin its seed; 0: it was not drawn.
func Text(f *lang.File, seed uint64, found *Finding, origin uint64, args string) []byte {
	c := *f
	comment := func(format string, a ...any) lang.Line {
		return lang.Line{Comment: strings.TrimRight("# "+fmt.Sprintf(format, a...), " ")}
	}
	var head []lang.Line
	if found != nil {
		lines := strings.Split(found.String(), "\n")
		head = append(head, comment("%s", lines[0]), comment("at: %s", stepAt(f, found.Line)))
	}
	if origin > 0 {
		head = append(head, comment("drawn by: towtank replay --seed %d%s", origin, args))
	}
	head = append(head, comment("seed=%d", seed))
	c.Lines = append(head, c.Lines...)
	return c.Format()
}

func stepAt(f *lang.File, line int) string {
	for i := range f.Lines {
		if f.Lines[i].Number == line && f.Lines[i].Step != nil {
			if line == len(f.Lines) {
				return f.Lines[i].Step.String() + ", or the end of the file"
			}
			return f.Lines[i].Step.String()
		}
	}
	return "the end of the file"
}

var seedComment = regexp.MustCompile(`^# seed=(\S*)$`)

// SeedOf returns the seed that a file says it fails with; false if it says none. What is no seed is an error that names
// file and line.
func SeedOf(f *lang.File) (seed uint64, ok bool, err error) {
	for i := range f.Lines {
		if m := seedComment.FindStringSubmatch(f.Lines[i].Comment); m != nil {
			seed, err := strconv.ParseUint(m[1], 10, 64)
			if err != nil {
				return 0, false, fmt.Errorf("%s:%d: seed: found %q, allowed: 0 to %d", f.Name, f.Lines[i].Number, m[1], uint64(math.MaxUint64))
			}
			return seed, true, nil
		}
	}
	return 0, false, nil
}
