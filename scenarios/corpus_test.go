package scenarios_test

import (
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/datapath/openflow"
	"towtank/datapath/ovsdb"
	"towtank/scenarios"
	"towtank/scenarios/spec"
	"towtank/sim"
)

var updateCorpus = flag.Bool("update-corpus", false, "write the corpus of canonical objects anew")

const corpusFile = "testdata/corpus.txt"

// collector keeps one object of every shape that agents want: what differs in numbers, addresses and
// names only is of one shape.
type collector struct {
	world  *sim.World
	shapes map[string]string
}

var (
	varying = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-f]{2}(:[0-9a-f]{2}){5}|[0-9a-f]*:[0-9a-f:]*:[0-9a-f:]*|\d+(\.\d+){3}|\d+`)
	lists   = regexp.MustCompile(`(,bucket=[^,]*(,[^,]*)*)+$`)
)

func shapeOf(o datapath.Object) string {
	text := lists.ReplaceAllString(o.String(), ",buckets")
	if o.Kind() == datapath.KindPort || o.Kind() == datapath.KindLink {
		text = regexp.MustCompile(`(dev |external_ids:towtank-[a-z-]+=|^|alias )\S+`).ReplaceAllString(text, "$1_")
	}
	return string(o.Kind()) + " " + varying.ReplaceAllString(text, "N")
}

// Step implements scenarios.Observer.
func (c *collector) Step(s scenarios.Step) {
	if !strings.HasPrefix(s.Text, "settle") {
		return
	}
	for _, n := range c.world.Nodes() {
		for _, o := range n.Desired() {
			shape := shapeOf(o)
			if _, known := c.shapes[shape]; !known {
				c.shapes[shape] = string(o.Kind()) + "\t" + o.String()
			}
		}
	}
}

// Invariant implements scenarios.Observer.
func (c *collector) Invariant(scenarios.Invariant) {}

// End implements scenarios.Observer.
func (c *collector) End(scenarios.End) {}

// The corpus has one object of every shape that the scenarios have agents want. It is what every backend
// is held against: it must dump each as it was written. A new shape is added with -update-corpus.
func TestCorpus(t *testing.T) {
	c := &collector{shapes: map[string]string{}}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".scenario") {
			return err
		}
		_, err = scenarios.Run(spec.File(t, path), scenarios.Options{Seed: 1, NoEnd: true, Hook: func(w *sim.World) { c.world = w }}, c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if *updateCorpus {
		lines := slices.Sorted(maps.Values(c.shapes))
		if err := os.WriteFile(corpusFile, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(corpusFile)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		kind, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		o, err := parseObject(datapath.Kind(kind), text)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if o.Kind() != datapath.Kind(kind) || o.Key().Kind != o.Kind() {
			t.Errorf("%s: kind %s, of its key %s", line, o.Kind(), o.Key().Kind)
		}
		if o.String() != text {
			t.Errorf("%s: parses back to %s", line, o)
		}
		have[shapeOf(o)] = true
	}
	for _, shape := range slices.Sorted(maps.Keys(c.shapes)) {
		if !have[shape] {
			t.Errorf("not in %s: %s", corpusFile, c.shapes[shape])
		}
	}
}

func parseObject(kind datapath.Kind, text string) (datapath.Object, error) {
	switch kind {
	case datapath.KindFlow:
		return openflow.ParseFlow(text)
	case datapath.KindGroup:
		return openflow.ParseGroup(text)
	case datapath.KindMeter:
		return openflow.ParseMeter(text)
	case datapath.KindPort:
		return ovsdb.ParsePort(text)
	}
	return host.Parse(kind, text)
}
