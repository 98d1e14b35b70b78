package v1beta1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const full = `apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata:
  name: web
spec:
  appliedTo:
    namespaceSelector:
      matchLabels:
        env: prod
    podSelector:
      matchExpressions:
      - key: app
        operator: In
        values:
        - web
  bandwidth:
    burst: 20M
    rate: 10M
  egressIP: 172.18.0.50
  externalIPPool: pool
status:
  conditions:
  - lastTransitionTime: "2026-01-02T03:04:05Z"
    reason: Allocated
    status: "True"
    type: IPAllocated
  egressIP: 172.18.0.50
  egressNode: n2
`

// A manifest decodes strictly into the types and encodes to the same text: the names on the wire
// are right, and none is missing.
func TestWireNames(t *testing.T) {
	var e Egress
	if err := yaml.UnmarshalStrict([]byte(full), &e); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(&e)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(full, string(out)); d != "" {
		t.Errorf("manifest changed (-written +read):\n%s", d)
	}
	pool := `{"kind":"ExternalIPPool","apiVersion":"crd.antrea.io/v1beta1","metadata":{"name":"p"},` +
		`"spec":{"ipRanges":[{"cidr":"10.0.0.0/24"},{"start":"10.1.0.1","end":"10.1.0.9"}],` +
		`"subnetInfo":{"gateway":"10.0.0.1","prefixLength":24,"vlan":10},"nodeSelector":{}},"status":{"usage":{"total":9,"used":1}}}`
	var p ExternalIPPool
	if err := yaml.UnmarshalStrict([]byte(pool), &p); err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(&p)
	if d := cmp.Diff(pool, string(got)); d != "" {
		t.Errorf("pool changed (-written +read):\n%s", d)
	}
}

// A deep copy is equal and shares no memory that a writer could reach.
func TestDeepCopy(t *testing.T) {
	var e Egress
	if err := yaml.Unmarshal([]byte(full), &e); err != nil {
		t.Fatal(err)
	}
	e.Spec.EgressIPs = []string{"1.1.1.1"}
	c := e.DeepCopy()
	if d := cmp.Diff(&e, c); d != "" {
		t.Fatalf("copy differs:\n%s", d)
	}
	before, _ := json.Marshal(&e)
	c.Spec.AppliedTo.PodSelector.MatchExpressions[0].Values[0] = "x"
	c.Spec.AppliedTo.NamespaceSelector.MatchLabels["env"] = "x"
	c.Spec.Bandwidth.Rate = "x"
	c.Spec.EgressIPs[0] = "x"
	c.Status.Conditions[0].Status = corev1.ConditionFalse
	after, _ := json.Marshal(&e)
	if string(before) != string(after) {
		t.Error("writing to the copy changed the original")
	}

	p := &ExternalIPPool{Spec: ExternalIPPoolSpec{
		IPRanges: []IPRange{{CIDR: "10.0.0.0/24"}}, SubnetInfo: &SubnetInfo{VLAN: 1},
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
	}}
	l := &ExternalIPPoolList{Items: []ExternalIPPool{*p}}
	lc := l.DeepCopyObject().(*ExternalIPPoolList)
	lc.Items[0].Spec.IPRanges[0].CIDR, lc.Items[0].Spec.SubnetInfo.VLAN = "x", 2
	lc.Items[0].Spec.NodeSelector.MatchLabels["a"] = "x"
	if p.Spec.IPRanges[0].CIDR == "x" || p.Spec.SubnetInfo.VLAN == 2 || p.Spec.NodeSelector.MatchLabels["a"] == "x" {
		t.Error("writing to the copy of the list changed the original")
	}
}

func TestScheme(t *testing.T) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"Egress", "EgressList", "ExternalIPPool", "ExternalIPPoolList"} {
		if _, err := s.New(SchemeGroupVersion.WithKind(k)); err != nil {
			t.Error(err)
		}
	}
}
