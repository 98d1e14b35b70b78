//go:build linux

package netns

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"towtank/e2e/cleanup"
	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/scenarios/report"
)

// twoNodes has a packet of each kind between two nodes and to the outside, and an agent that is killed.
const twoNodes = `nodes n1 n2
label node/n2 egress=yes
external ext
pod default/a node=n1 app=web
pod default/b node=n2
apply e.yaml
settle
probe default/a -> default/b expect ok source=default/a via=n1 reply-via=n2
probe default/a -> default/b:8080/udp size=3000 expect ok backend=default/b
probe default/a -> default/b/icmp expect ok
probe default/a -> default/b:9 expect reject
probe default/a -> 10.96.200.200:80 expect drop
probe default/a -> ext expect ok source=172.18.0.50 via=n2
stream s default/a -> default/b every=50ms
agent * kill
agent * start
settle
stream-stop s expect lost<=0
expect-owner 172.18.0.50 node=n2
-- e.yaml --
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: pool}
spec:
  ipRanges: [{start: 172.18.0.50, end: 172.18.0.59}]
  nodeSelector: {matchLabels: {egress: "yes"}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: web}
spec:
  appliedTo: {podSelector: {matchLabels: {app: web}}}
  externalIPPool: pool
`

func TestMain(m *testing.M) {
	status := m.Run()
	cleanup.Run()
	os.Exit(status)
}

func TestTwoNodes(t *testing.T) {
	if err := Available(); err != nil {
		if os.Getenv("TOWTANK_ROOT") == "1" && os.Getenv("TOWTANK_OVS") == "1" {
			t.Fatal(err)
		}
		t.Skip(err) // a developer's machine without root or Open vSwitch; CI fails above
	}
	f, err := lang.Parse("two-nodes.scenario", []byte(twoNodes))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	end, err := Run(f, scenarios.Options{}, &report.Text{W: &b})
	if err != nil || end.Outcome != scenarios.Pass {
		t.Fatalf("%v\n%s", err, b.String())
	}
	left, err := filepath.Glob("/run/netns/" + prefixOf(os.Getpid()) + "*")
	if err != nil || len(left) > 0 {
		t.Errorf("namespaces that are left: %v, %v", left, err)
	}
	out, err := exec.Command("ps", "-o", "args=", "--ppid", strings.TrimSpace(pid())).Output()
	if err == nil && strings.Contains(string(out), "towtank-") {
		t.Errorf("processes that are left:\n%s", out)
	}
}

func pid() string { return strings.TrimSuffix(strings.TrimPrefix(prefixOf(os.Getpid()), "tt"), "-") }

func TestReasonsToSkip(t *testing.T) {
	for text, want := range map[string]string{
		"nodes n1\nadvance 40s\nadvance 21s\n":             "line 3: more than 1m0s",
		"nodes n1\n[!netns] advance 90s\n":                 "",
		"nodes n1\nfail n1 switch mode=refuse\n":           "",
		"nodes n1\nfail n1 api-status mode=conflict\n":     "",
		"nodes n1\nclock n1 skew=5s\n":                     "line 2: all nodes have the clock",
		"network lan cidr=10.99.0.0/24 vlan=7\nnodes n1\n": "line 1: the kernel has no VLAN",
	} {
		f, err := lang.Parse("x.scenario", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := unable(f)
		if err != nil || !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%q: want %q, got %q, %v", text, want, got, err)
		}
	}
}
