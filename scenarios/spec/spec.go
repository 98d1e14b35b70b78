// Package spec builds scenarios in Go: the same steps as in a .scenario file, run by the same runner,
// with the same report when one fails. It works in plain tests and, with GinkgoT(), in Ginkgo specs.
//
//	s := spec.New(t)
//	s.Options("ip=dual").Nodes("n1", "n2").External("ext")
//	s.Pod("default/a", "n1", "app=web").Pod("default/c", "n2")
//	s.Apply(web).Settle()
//	s.Probe("default/c", "svc/default/web:80", spec.Count(10), spec.OK, spec.Backend("default/a"))
//	s.Run()
//
// Nothing happens before Run: it prints the scenario, reads it back, and runs it once for every seed.
// So what failed can be kept as a file, word for word: the report ends with its text.
package spec

import (
	"bytes"
	"fmt"
	"path"
	"runtime"
	"strings"
	"time"

	"towtank/scenarios/lang"
)

// T is what a test needs to be: *testing.T, testing.TB, or GinkgoT().
type T interface {
	Helper()
	Name() string
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
}

// Scenario collects steps. Its methods add one each and return it.
type Scenario struct {
	t     T
	file  lang.File
	lines *[]lang.Line // where steps go: the file's, or those of the innermost loop
	only  []string
	seeds []uint64
	bad   []string
	ran   bool
}

// DefaultSeeds are the seeds that Run uses unless Seeds says otherwise.
var DefaultSeeds = []uint64{1, 2, 3}

// New starts a scenario. A scenario that is never run fails its test.
func New(t T) *Scenario {
	t.Helper()
	s := &Scenario{t: t, seeds: DefaultSeeds}
	s.lines = &s.file.Lines
	s.file.Name = fileName(t.Name())
	t.Cleanup(func() {
		if !s.ran {
			t.Errorf("the scenario was built, but not run: call Run")
		}
	})
	return s
}

// fileName makes a name for the scenario out of the test's.
func fileName(test string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, test)
	return name + ".scenario"
}

// Seeds sets the seeds to run with.
func (s *Scenario) Seeds(seeds ...uint64) *Scenario {
	s.seeds = seeds
	return s
}

// Do adds steps as they are written in a file, one a line.
func (s *Scenario) Do(lines ...string) *Scenario {
	for _, text := range lines {
		for line := range strings.SplitSeq(text, "\n") {
			if line = strings.TrimSpace(line); line != "" {
				s.line(line)
			}
		}
	}
	return s
}

// line adds one step or comment.
func (s *Scenario) line(text string) {
	if strings.HasPrefix(text, "#") {
		*s.lines = append(*s.lines, lang.Line{Comment: text})
		return
	}
	parse := lang.ParseStep
	if s.inLoop() && strings.Contains(text, "$") {
		parse = func(text string) (lang.Step, error) { return lang.ParseTemplate(text) }
	}
	st, err := parse(text)
	if err != nil {
		s.badf("%v", err)
		return
	}
	*s.lines = append(*s.lines, lang.Line{Only: s.only, Step: st})
}

// badf notes a mistake with the place in the test that made it.
func (s *Scenario) badf(format string, args ...any) {
	where := "?"
	for depth := 1; ; depth++ {
		_, file, line, ok := runtime.Caller(depth)
		if !ok {
			break
		}
		if !strings.Contains(file, "/scenarios/spec/") || strings.HasSuffix(file, "_test.go") {
			where = fmt.Sprintf("%s:%d", path.Base(file), line)
			break
		}
	}
	s.bad = append(s.bad, where+": "+fmt.Sprintf(format, args...))
}

func (s *Scenario) inLoop() bool { return s.lines != &s.file.Lines }

// step adds a step made of words; each is quoted if it needs it.
func (s *Scenario) step(words ...string) *Scenario {
	s.line(strings.Join(words, " "))
	return s
}

// Comment adds a line that says why.
func (s *Scenario) Comment(text string) *Scenario {
	for line := range strings.SplitSeq(text, "\n") {
		*s.lines = append(*s.lines, lang.Line{Comment: strings.TrimSpace("# " + line)})
	}
	return s
}

// On limits the steps that body adds to some backends.
func (s *Scenario) On(backend string, body func()) *Scenario {
	old := s.only
	s.only = []string{backend}
	body()
	s.only = old
	return s
}

// For repeats what body adds for every value; $name stands for it.
func (s *Scenario) For(name string, values []string, body func()) *Scenario {
	loop := &lang.Loop{Var: name, Values: values}
	old := s.lines
	s.lines = &loop.Body
	body()
	s.lines = old
	*s.lines = append(*s.lines, lang.Line{Loop: loop, Only: s.only})
	return s
}

// Options sets options: "ip=dual", "traffic=noEncap".
func (s *Scenario) Options(settings ...string) *Scenario {
	return s.step(append([]string{"option"}, settings...)...)
}

// Nodes adds the nodes; the k-th has transport address 172.18.0.(10+k).
func (s *Scenario) Nodes(names ...string) *Scenario {
	return s.step(append([]string{"nodes"}, names...)...)
}

// External adds a host outside the cluster; options as "serve=80/tcp", "next=n2".
func (s *Scenario) External(name string, options ...string) *Scenario {
	return s.step(append([]string{"external", name}, options...)...)
}

// Label changes labels of a node: "KEY=VALUE", "KEY-".
func (s *Scenario) Label(node string, changes ...string) *Scenario {
	return s.step(append([]string{"label", "node/" + node}, changes...)...)
}

// Pod makes a Pod on a node and starts it; labels and options as "app=web", "serve=53/udp", "ready=false".
func (s *Scenario) Pod(pod, node string, options ...string) *Scenario {
	return s.step(append([]string{"pod", pod, "node=" + node}, options...)...)
}

// PodDelete stops a Pod and removes its object.
func (s *Scenario) PodDelete(pod string) *Scenario { return s.step("pod-delete", pod) }

// PodReady sets a Pod's readiness.
func (s *Scenario) PodReady(pod string, ready bool) *Scenario {
	return s.step("pod-ready", pod, fmt.Sprint(ready))
}

// PodTerminate sets a Pod's deletion time; it still serves or not.
func (s *Scenario) PodTerminate(pod string, serving bool) *Scenario {
	if serving {
		return s.step("pod-terminate", pod)
	}
	return s.step("pod-terminate", pod, "serving=false")
}

// Namespace makes a Namespace with labels.
func (s *Scenario) Namespace(name string, labels ...string) *Scenario {
	return s.step(append([]string{"namespace", name}, labels...)...)
}

// Apply creates or updates the objects of a manifest in YAML.
func (s *Scenario) Apply(yaml string) *Scenario {
	return s.step("apply", s.manifest([]byte(yaml)))
}

// ApplyRefused applies a manifest of which the API refuses at least one object, with an error that has the text.
func (s *Scenario) ApplyRefused(yaml, text string) *Scenario {
	return s.step("apply", s.manifest([]byte(yaml)), "expect", "error="+text)
}

// DeleteManifest deletes the objects of a manifest in YAML.
func (s *Scenario) DeleteManifest(yaml string) *Scenario {
	return s.step("delete", s.manifest([]byte(yaml)))
}

// manifest keeps a manifest in the archive, each text once, and returns its name.
func (s *Scenario) manifest(data []byte) string {
	data = append(bytes.TrimSpace(dedent(data)), '\n')
	for _, m := range s.file.Files {
		if bytes.Equal(m.Data, data) {
			return m.Name
		}
	}
	name := fmt.Sprintf("%d.yaml", len(s.file.Files)+1)
	s.file.Files = append(s.file.Files, lang.Manifest{Name: name, Data: data})
	return name
}

// dedent takes away the indentation that all lines have, so that manifests can be indented like the
// code around them.
func dedent(data []byte) []byte {
	lines := strings.Split(string(data), "\n")
	common := -1
	for i, l := range lines {
		l = strings.TrimRight(l, " \t")
		lines[i] = l
		if l == "" {
			continue
		}
		if n := len(l) - len(strings.TrimLeft(l, "\t")); common < 0 || n < common {
			common = n
		}
	}
	for i, l := range lines {
		if common > 0 && len(l) >= common {
			l = l[common:]
		}
		// YAML does not take tabs: what is indented further in Go was indented by tabs.
		n := len(l) - len(strings.TrimLeft(l, "\t"))
		lines[i] = strings.Repeat("  ", n) + l[n:]
	}
	return []byte(strings.Join(lines, "\n"))
}

// Delete deletes an object: kind and NS/NAME or NAME.
func (s *Scenario) Delete(kind, name string) *Scenario { return s.step("delete", kind, name) }

// Patch changes an object by a JSON merge patch; a status goes to the subresource.
func (s *Scenario) Patch(kind, name, json string) *Scenario {
	return s.step("patch", kind, name, json)
}

// Endpoints puts answering endpoints behind a Service without selector, on all nodes in turn.
func (s *Scenario) Endpoints(service string, count int, nodes ...string) *Scenario {
	words := []string{"endpoints", service, fmt.Sprint(count)}
	if len(nodes) > 0 {
		words = append(words, "node="+strings.Join(nodes, ","))
	}
	return s.step(words...)
}

// Settle runs what is due, and checks the invariants.
func (s *Scenario) Settle() *Scenario { return s.step("settle") }

// Advance lets virtual time pass.
func (s *Scenario) Advance(d time.Duration) *Scenario { return s.step("advance", d.String()) }

// Mark is where ExpectWrites counts from.
func (s *Scenario) Mark() *Scenario { return s.step("mark") }

// ExpectWrites bounds what was written since Mark: "switch=0", "host<=2", "unit=service/default/web".
func (s *Scenario) ExpectWrites(node string, bounds ...string) *Scenario {
	return s.step(append([]string{"expect-writes", node}, bounds...)...)
}

// ExpectStatus compares fields of an object: "egressNode=n1", "condition.Ready=True".
func (s *Scenario) ExpectStatus(kind, name string, fields ...string) *Scenario {
	return s.step(append([]string{"expect-status", kind, name}, fields...)...)
}

// ExpectEvent wants an Event about an object.
func (s *Scenario) ExpectEvent(kind, name, reason string, options ...string) *Scenario {
	return s.step(append([]string{"expect-event", kind, name, "reason=" + reason}, options...)...)
}

// ExpectOwner wants exactly that node (or none, or any one) to hold an address.
func (s *Scenario) ExpectOwner(ip, node string) *Scenario {
	return s.step("expect-owner", ip, "node="+node)
}

// Agent does something to an agent: stop, kill, start, restart, pause, resume.
func (s *Scenario) Agent(node, op string) *Scenario { return s.step("agent", node, op) }

// OVS does something to a node's switch: restart, kill, start.
func (s *Scenario) OVS(node, op string) *Scenario { return s.step("ovs", node, op) }

// Watch holds, closes or releases the watches of an agent.
func (s *Scenario) Watch(node, op string, kinds ...string) *Scenario {
	return s.step(append([]string{"watch", node, op}, kinds...)...)
}

// Fail makes effects of a node's agent fail: "mode=refuse", "count=1", "skip=2".
func (s *Scenario) Fail(node, effect string, options ...string) *Scenario {
	return s.step(append([]string{"fail", node, effect}, options...)...)
}
