package check

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"towtank/sim"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

var (
	soakSeeds = flag.Uint64("soak", 2, "how many seeds each world is soaked with")
	soakFirst = flag.Uint64("soak-first", 1, "the first of them")
)

// worlds are the sorts of clusters that the invariants must hold in.
var worlds = map[string]sim.Options{
	"plain":   {},
	"dual":    {V4: true, V6: true},
	"v6":      {V6: true},
	"noEncap": {Traffic: "noEncap"},
	"hybrid":  {Traffic: "hybrid"},
	"vxlan":   {Tunnel: "vxlan"},
	"few":     {MaxEgressIPsPerNode: 1},
	"noProxy": {NoProxyAll: true},
	"dsr":     {LoadBalancerMode: "dsr"},
}

const soakObjects = `
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: pool}
spec:
  ipRanges: [{start: START, end: END}]
  nodeSelector: {matchLabels: {egress: "yes"}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: web}
spec:
  appliedTo: {podSelector: {matchLabels: {app: web}}}
  externalIPPool: pool
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: all}
spec:
  appliedTo: {namespaceSelector: {}}
  externalIPPool: pool
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{name: a, port: 80, targetPort: 8080}, {name: b, port: 53, protocol: UDP, targetPort: 8080}]}
status: {loadBalancer: {ingress: [{ip: BALANCER}]}}
---
apiVersion: v1
kind: Service
metadata: {name: sticky, namespace: default}
spec: {type: NodePort, sessionAffinity: ClientIP, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// soak is a world to which things happen.
type soak struct {
	t    *testing.T
	w    *sim.World
	c    *Checker
	rng  *rand.Rand
	pods int
	conn *sim.Conn
	log  []string
}

func newSoak(t *testing.T, o sim.Options, seed, variety uint64) *soak {
	o.Seed = seed
	if os.Getenv("SIMLOG") != "" {
		o.LogTo = os.Stderr
	}
	w, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{t: t, w: w, c: New(w), rng: rand.New(rand.NewPCG(seed, variety))}
	w.AfterEffect = func() { s.report("after an effect", s.c.AtStep()) }
	for _, n := range []string{"n1", "n2", "n3"} {
		if _, err := w.AddNode(n); err != nil {
			t.Fatal(err)
		}
		if err := w.Kube.ChangeLabels(kube.KindNode, "", n, map[string]string{"egress": "yes"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.AddExternal(sim.ExternalConfig{Name: "ext"}); err != nil {
		t.Fatal(err)
	}
	yaml := replace(soakObjects, "START", "172.18.0.50", "END", "172.18.0.59", "BALANCER", "192.0.2.1")
	if o.V6 && !o.V4 {
		yaml = replace(soakObjects, "START", "fd00:18::50", "END", "fd00:18::59", "BALANCER", "2001:db8::1")
	}
	apply(t, w, yaml)
	for range 4 {
		s.newPod()
	}
	s.settle()
	return s
}

func (s *soak) report(when string, got []Result) {
	for _, r := range got {
		s.t.Errorf("%s: %s\n  after: %v", when, r, s.lately())
	}
}

// lately is what happened last.
func (s *soak) lately() []string { return s.log[max(0, len(s.log)-12):] }

func (s *soak) settle() {
	if err := s.w.Settle(30 * time.Second); err != nil {
		s.t.Errorf("settle: %v\n  after: %v", err, s.lately())
	}
	for _, p := range s.w.Problems() {
		s.t.Errorf("problem: %s\n  after: %v", p, s.lately())
	}
	s.report("settled", s.c.AfterSettle())
}

func (s *soak) newPod() {
	s.pods++
	labels := map[string]string{}
	if s.rng.IntN(2) == 0 {
		labels["app"] = "web"
	}
	pod(s.t, s.w, fmt.Sprint("p", s.pods), s.node().Name(), labels)
}

func (s *soak) node() *sim.Node { return s.w.Nodes()[s.rng.IntN(len(s.w.Nodes()))] }

func (s *soak) anyPod() string {
	if pods := s.w.RunningPods(); len(pods) > 0 {
		return pods[s.rng.IntN(len(pods))]
	}
	return ""
}

func pick[T any](s *soak, list ...T) T { return list[s.rng.IntN(len(list))] }

func (s *soak) patch(kind kube.Kind, ns, name, json string) string {
	_, err := s.w.Kube.Patch(kind, ns, name, []byte(json))
	if err != nil {
		return fmt.Sprintf("patch %s %s: %v", name, json, err)
	}
	return fmt.Sprintf("patch %s %s", name, json)
}

// act does one thing, and says what.
func (s *soak) act() string {
	n := s.node()
	must := func(err error) {
		if err != nil {
			s.t.Fatalf("%v after %v", err, s.log)
		}
	}
	switch s.rng.IntN(16) {
	case 0:
		s.w.NodeDown(n, false)
		return "node-down " + n.Name()
	case 1, 2:
		must(s.w.NodeUp(n, nil))
		return "node-up " + n.Name()
	case 3:
		op := pick(s, "restart", "kill", "pause", "stop")
		must(s.w.AgentOp(n, op))
		return "agent " + n.Name() + " " + op
	case 4:
		must(s.w.AgentOp(n, "resume"))
		must(s.w.AgentOp(n, "start"))
		return "agent " + n.Name() + " resume, start"
	case 5:
		op := pick(s, "restart", "kill")
		must(s.w.OVSOp(n, op))
		return "ovs " + n.Name() + " " + op
	case 6:
		must(s.w.OVSOp(n, "start"))
		return "ovs " + n.Name() + " start"
	case 7:
		must(s.w.SetPartition([][]string{{n.Name()}, {"*"}}))
		return "partition " + n.Name() + " | *"
	case 8:
		s.w.Heal()
		return "heal"
	case 9:
		op := pick(s, "hold", "close", "release")
		must(s.w.Watch(n, op, nil, 0))
		return "watch " + n.Name() + " " + op
	case 10:
		f := sim.Fault{
			Effect: pick(s, "any", sim.EffectSwitch, sim.EffectAddress, sim.EffectIPTables, sim.EffectPorts), Skip: s.rng.IntN(3), Count: 1,
			Mode: pick(s, sim.Refuse, sim.Timeout, sim.LostReply, sim.Die, sim.DieAfter),
		}
		s.w.AddFault(n, f)
		return "fail " + n.Name() + " " + f.String()
	case 11:
		s.newPod()
		return "pod"
	case 12:
		if p := s.anyPod(); p != "" {
			_ = s.w.Kube.Delete(kube.KindPod, "default", p[len("default/"):]) // it may be gone, and the kubelet not know yet
			return "delete " + p
		}
	case 13:
		return s.patch(kube.KindService, "default", "web", pick(s,
			`{"spec":{"externalTrafficPolicy":"Local"}}`, `{"spec":{"externalTrafficPolicy":"Cluster"}}`,
			`{"spec":{"internalTrafficPolicy":"Local"}}`, `{"spec":{"internalTrafficPolicy":"Cluster"}}`,
			`{"spec":{"selector":{"app":"none"}}}`, `{"spec":{"selector":{"app":"web"}}}`,
			`{"spec":{"sessionAffinity":"ClientIP"}}`, `{"spec":{"sessionAffinity":"None"}}`))
	case 14:
		return s.patch(kube.KindEgress, "", pick(s, "web", "all"), pick(s,
			`{"spec":{"appliedTo":{"podSelector":{"matchLabels":{"app":"web"}},"namespaceSelector":null}}}`,
			`{"spec":{"appliedTo":{"podSelector":null,"namespaceSelector":{}}}}`,
			`{"spec":{"appliedTo":{"podSelector":{"matchLabels":{"app":"none"}},"namespaceSelector":null}}}`))
	case 15:
		if p := s.anyPod(); p != "" {
			return s.patch(kube.KindPod, "default", p[len("default/"):], pick(s, `{"metadata":{"labels":{"app":"web"}}}`, `{"metadata":{"labels":{"app":"x"}}}`))
		}
	}
	set := map[string]string{"egress": pick(s, "yes", "no")}
	must(s.w.Kube.ChangeLabels(kube.KindNode, "", n.Name(), set, nil))
	return fmt.Sprint("label ", n.Name(), set)
}

// open makes a connection to the outside that is kept; beat uses it.
func (s *soak) open() {
	v6 := !s.w.Nodes()[0].Transport(false).IsValid()
	if p := s.anyPod(); p != "" {
		if src, err := s.w.PodSource(p); err == nil && src.NS != nil {
			if c, err := s.w.Open(sim.Flow{From: src, To: s.w.External("ext").Addr(v6), Port: 8080, Proto: packet.ProtoTCP}); err == nil {
				s.conn = c
			}
		}
	}
}

// The invariants hold whatever happens: before, during, after, and at the end.
func TestSoak(t *testing.T) {
	names := slices.Sorted(maps.Keys(worlds))
	for _, name := range names {
		o := worlds[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := *soakFirst; seed < *soakFirst+*soakSeeds; seed++ {
				s := newSoak(t, o, seed, uint64(slices.Index(names, name)))
				for range 25 {
					for range 1 + s.rng.IntN(3) {
						s.log = append(s.log, s.act())
					}
					if d := time.Duration(s.rng.IntN(40)) * time.Second; s.rng.IntN(2) == 0 {
						s.log = append(s.log, "advance "+d.String())
						if err := s.w.Advance(d); err != nil {
							t.Fatal(err)
						}
					}
					s.log = append(s.log, "settle")
					s.settle()
					if s.conn != nil {
						s.conn.Send()
					}
					if s.rng.IntN(4) == 0 {
						s.open()
					}
					if t.Failed() {
						t.Fatalf("seed %d", seed)
					}
				}
				s.report("end", s.c.End(false))
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}
