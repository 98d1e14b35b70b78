package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// directories of scenarios, by area: where a bug is most likely to be noticed.
var directories = map[string]string{"Egress": "egress", "Services": "services", "Pods": "pods", "OVS": "restart", "Restart": "restart"}

// scenarioLimit bounds the run of all scenarios with one mutant: a bug can make them hang.
const scenarioLimit = 5 * time.Minute

// scenarios runs the scenario files, those of the bug's own first, and returns the first that fails.
func (o *options) scenarios(ctx context.Context, m *mutant, bin string) (string, error) {
	files, err := o.files(m)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, scenarioLimit)
	defer cancel()
	for _, list := range slices.Collect(slices.Chunk(files, 8)) {
		args := append([]string{"run", "--json", "--jobs", strconv.Itoa(o.jobs)}, list...)
		c := exec.CommandContext(ctx, bin, args...)
		c.Dir = o.root
		out, err := c.StdoutPipe()
		if err != nil {
			return "", err
		}
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			return "", err
		}
		failed := ""
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			var end struct{ Kind, File, Result string }
			if json.Unmarshal(lines.Bytes(), &end) == nil && end.Kind == "end" && end.Result == "fail" && failed == "" {
				failed = strings.TrimSuffix(filepath.Base(end.File), ".scenario")
				cancel() // one is enough
			}
		}
		err = c.Wait()
		switch {
		case failed != "":
			return failed, nil
		case ctx.Err() == nil && err != nil:
			return "(a panic)", nil // which leaves no result of its file
		case ctx.Err() == context.DeadlineExceeded:
			return "(they hang)", nil
		case ctx.Err() != nil:
			return "", ctx.Err()
		}
	}
	return "", nil
}

// files returns the scenario files in the order in which they are tried.
func (o *options) files(m *mutant) ([]string, error) {
	var out []string
	err := filepath.WalkDir(filepath.Join(o.root, "scenarios"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".scenario") {
			rel, relErr := filepath.Rel(o.root, path)
			if relErr != nil {
				return relErr
			}
			out = append(out, rel)
		}
		return err
	})
	worth := func(path string) int {
		switch {
		case strings.Contains(path, fmt.Sprintf("bug-%03d", m.bug)):
			return 0
		case strings.Contains(path, "/"+directories[m.area]+"/"):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(out, func(a, b string) int { return worth(a) - worth(b) })
	return out, err
}

var (
	failing = regexp.MustCompile(`(?m)^seed (\d+): FAIL$`)
	shrunk  = regexp.MustCompile(`(?m)^(\d+) steps, of (\d+) up to the failure`)
)

// fuzz tries seeds until one finds something, and shrinks that one.
func (o *options) fuzz(ctx context.Context, r *row, bin, dir string) error {
	limited, cancel := context.WithTimeout(ctx, o.period+time.Minute)
	defer cancel()
	c := exec.CommandContext(limited, bin, "fuzz", "--stop", "--seeds", fmt.Sprintf("1..%d", o.seeds), "--for", o.period.String(),
		"--profile", r.m.profile, "--jobs", strconv.Itoa(o.jobs))
	text, err := c.Output()
	found := failing.FindSubmatch(text)
	if found == nil {
		if limited.Err() != nil && ctx.Err() == nil {
			r.seed = "(they hang)"
		} else if _, exited := err.(*exec.ExitError); err != nil && !exited {
			return err
		}
		return ctx.Err()
	}
	r.seed = string(found[1])
	small := filepath.Join(dir, "small.scenario")
	if o.out != "" {
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return err
		}
		small = filepath.Join(o.out, fmt.Sprintf("bug-%03d.scenario", r.m.bug))
	}
	began := time.Now()
	c = exec.CommandContext(ctx, bin, "shrink", "--seed", r.seed, "--profile", r.m.profile, "--within", o.within.String(), "-o", small)
	both, err := c.CombinedOutput()
	r.took = time.Since(began)
	if err != nil {
		return fmt.Errorf("bug %d: shrinking seed %s: %w\n%s", r.m.bug, r.seed, err, both)
	}
	if s := shrunk.FindSubmatch(both); s != nil {
		r.steps, _ = strconv.Atoi(string(s[1]))
		r.from, _ = strconv.Atoi(string(s[2]))
	}
	data, err := os.ReadFile(small)
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(data), "\n")
	r.found = short(strings.TrimPrefix(first, "# "))
	return nil
}

// maxFound bounds what a row says about the finding.
const maxFound = 90

func short(text string) string {
	text = strings.ReplaceAll(text, "|", "¦")
	if r := []rune(text); len(r) > maxFound {
		return string(r[:maxFound]) + "…"
	}
	return text
}
