package scenarios_test

import (
	"slices"
	"testing"

	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/sim/packet"
)

// outcomes is an observer that keeps what became of each step.
type outcomes struct{ list []string }

func (o *outcomes) Step(s scenarios.Step)       { o.list = append(o.list, string(s.Outcome)) }
func (*outcomes) Invariant(scenarios.Invariant) {}
func (*outcomes) End(scenarios.End)             {}

// A step about what a skipped one would have made is skipped, too.
func TestWhatFollowsASkippedStep(t *testing.T) {
	f, err := lang.Parse("x.scenario", []byte(`nodes n1
pod default/w node=n1 app=w serve=8080/sctp
pod default/c node=n1
apply a.yaml
settle
open s default/c -> svc/default/web
send s
pod-delete backend/s
-- a.yaml --
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: w}
  ports: [{port: 99, targetPort: 8080, protocol: SCTP}]
`))
	if err != nil {
		t.Fatal(err)
	}
	cannot := func(_ lang.Address, f scenarios.Flow) string {
		if f.Proto == packet.ProtoSCTP {
			return "no SCTP here"
		}
		return ""
	}
	var o outcomes
	if _, err := scenarios.Run(f, scenarios.Options{Seed: 1, Cannot: cannot}, &o); err != nil {
		t.Fatal(err)
	}
	want := []string{"pass", "pass", "pass", "pass", "pass", "skip", "skip", "skip"}
	if !slices.Equal(o.list, want) {
		t.Errorf("steps: %v, want %v", o.list, want)
	}
}
