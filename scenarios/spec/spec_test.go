package spec_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"towtank/scenarios/spec"
)

const web = `
	apiVersion: v1
	kind: Service
	metadata: {name: web, namespace: default}
	spec:
		selector: {app: web}
		ports: [{port: 80, targetPort: 8080}]
`

// fake is a test that remembers how it failed.
type fake struct {
	failed  string
	cleanup []func()
}

func (f *fake) Helper()                   {}
func (f *fake) Name() string              { return "TestOf/something odd" }
func (f *fake) Fatalf(s string, a ...any) { f.failed += fmt.Sprintf(s, a...) }
func (f *fake) Errorf(s string, a ...any) { f.failed += fmt.Sprintf(s, a...) }
func (f *fake) Cleanup(do func())         { f.cleanup = append(f.cleanup, do) }
func (f *fake) end() string {
	for _, do := range f.cleanup {
		do()
	}
	return f.failed
}

func build(t spec.T) *spec.Scenario {
	s := spec.New(t)
	s.Nodes("n1", "n2").External("ext")
	s.Pod("default/a", "n1", "app=web").Pod("default/c", "n2")
	return s.Apply(web).Settle()
}

func TestScenario(t *testing.T) {
	s := build(t)
	s.For("P", []string{"default/a", "default/c", "node/n2"}, func() {
		s.Probe("$P", "svc/default/web", spec.Count(3), spec.OK, spec.Backend("default/a"))
	})
	s.Comment("Without endpoints it is refused.")
	s.PodDelete("default/a").Advance(2 * time.Second).Settle()
	s.Do("probe default/c -> svc/default/web expect reject")
	s.Run()
	for _, want := range []string{"apply 1.yaml", "  selector: {app: web}", "for P in ", "  probe $P -> svc/default/web count=3 expect ok backend=default/a"} {
		if !strings.Contains(string(s.Text()), want) {
			t.Errorf("the text lacks %q:\n%s", want, s.Text())
		}
	}
}

// A refused object is an expectation like any other: met, the scenario goes on.
func TestRefusedManifest(t *testing.T) {
	s := build(t)
	s.ApplyRefused(strings.Replace(web, "port: 80,", "port: 99999,", 1), "spec.ports[0].port")
	s.Probe("default/c", "svc/default/web", spec.OK, spec.Backend("default/a")).Run()
}

func TestFailureIsReported(t *testing.T) {
	f := &fake{}
	build(f).Probe("default/c", "svc/default/web", spec.Drop).Run()
	report := f.end()
	for _, want := range []string{
		"TestOf-something-odd", "FAIL probe default/c -> svc/default/web expect drop", "want drop, got ok", "replay: towtank run --seed 1",
		"The scenario, to keep as", "probe default/c -> svc/default/web expect drop\n-- 1.yaml --",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}

func TestMistakesNameTheirPlace(t *testing.T) {
	f := &fake{}
	build(f).Probe("default/c", "svc/default/web", spec.Backend("default/a"), spec.Reject).Run()
	if report := f.end(); !strings.Contains(report, "spec_test.go:") || !strings.Contains(report, "cannot both hold") {
		t.Errorf("the report is %q", report)
	}
}

func TestNotRun(t *testing.T) {
	f := &fake{}
	build(f)
	if report := f.end(); !strings.Contains(report, "call Run") {
		t.Errorf("the report is %q", report)
	}
}
