// Package crdtest has the API server's own code check the custom resource definitions, and compares what they
// accept with what the simulated Kubernetes accepts. It is a module of its own: that code brings much along.
package crdtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"towtank/sim/kube"
)

// resource validates objects of one definition as the API server does.
type resource struct {
	validator  validation.SchemaValidator
	structural *schema.Structural
	rules      *cel.Validator
}

// definitions reads deploy/crds.yaml; every one of them must pass what an API server asks of a definition.
func definitions(t *testing.T) map[string]*resource {
	t.Helper()
	data, err := os.ReadFile("../crds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*resource{}
	for _, doc := range bytes.Split(data, []byte("\n---\n")) {
		var crd v1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(doc, &crd); err != nil {
			t.Fatal(err)
		}
		v1.SetDefaults_CustomResourceDefinition(&crd)
		v1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		var internal apiextensions.CustomResourceDefinition
		if err := v1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil); err != nil {
			t.Fatal(err)
		}
		internal.Status.StoredVersions = []string{"v1beta1"} // the server's to fill in
		for _, e := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), &internal) {
			t.Errorf("%s: %v", crd.Name, e)
		}
		var props apiextensions.JSONSchemaProps
		if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
			t.Fatal(err)
		}
		r := &resource{}
		if r.validator, _, err = validation.NewSchemaValidator(&props); err != nil {
			t.Fatal(err)
		}
		if r.structural, err = schema.NewStructural(&props); err != nil {
			t.Fatal(err)
		}
		r.rules = cel.NewValidator(r.structural, true, celconfig.PerCallLimit)
		out[crd.Spec.Names.Kind] = r
	}
	return out
}

// validate returns what is wrong with an object; old is nil for a new one.
func (r *resource) validate(t *testing.T, object, old map[string]any) field.ErrorList {
	t.Helper()
	var list field.ErrorList
	var before any
	if old == nil {
		list = validation.ValidateCustomResource(nil, object, r.validator)
	} else {
		list = validation.ValidateCustomResourceUpdate(nil, object, old, r.validator)
		before = old
	}
	more, _ := r.rules.Validate(t.Context(), nil, r.structural, object, before, celconfig.RuntimeCELCostBudget)
	return append(list, more...)
}

func newCluster(t *testing.T) *kube.Cluster {
	t.Helper()
	c, err := kube.New(kube.Config{Now: time.Now, IPv4: true, IPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	o, err := decode(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

// decode reads YAML as the API server does: whole numbers are integers.
func decode(text string) (o map[string]any, err error) {
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, err
	}
	return o, json.Unmarshal(data, &o)
}

func egress(spec string) string {
	return "{apiVersion: crd.antrea.io/v1beta1, kind: Egress, metadata: {name: e}, spec: {" + spec + "}}"
}

func pool(spec string) string {
	return "{apiVersion: crd.antrea.io/v1beta1, kind: ExternalIPPool, metadata: {name: p}, spec: {" + spec + "}}"
}

// cases are objects, and whether they are valid.
var cases = []struct {
	name, text string
	valid      bool
}{
	{"static address", egress("appliedTo: {}, egressIP: 1.2.3.4"), true},
	{"IPv6", egress("appliedTo: {podSelector: {matchLabels: {a: b}}}, egressIP: 'fd00::1'"), true},
	{"expressions", egress("appliedTo: {namespaceSelector: {matchExpressions: [{key: x.y/z, operator: In, values: [a, b]}, {key: q, operator: Exists}]}}, egressIP: 1.2.3.4"), true},
	{"bandwidth", egress("appliedTo: {}, egressIP: 1.2.3.4, bandwidth: {rate: 500k, burst: 10M}"), true},
	{"neither address nor pool", egress("appliedTo: {}"), false},
	{"no appliedTo", egress("egressIP: 1.2.3.4"), false},
	{"no address", egress("appliedTo: {}, egressIP: 1.2.3"), false},
	{"with a length", egress("appliedTo: {}, egressIP: 1.2.3.4/24"), false},
	{"loopback", egress("appliedTo: {}, egressIP: 127.0.0.1"), false},
	{"unspecified", egress("appliedTo: {}, egressIP: '::'"), false},
	{"multicast", egress("appliedTo: {}, egressIP: 224.0.0.1"), false},
	{"link-local", egress("appliedTo: {}, egressIP: 169.254.1.1"), true},
	{"several addresses", egress("appliedTo: {}, egressIPs: [1.2.3.4, 'fd00::1']"), false},
	{"several pools", egress("appliedTo: {}, externalIPPools: [a, b]"), false},
	{"rate 0", egress("appliedTo: {}, egressIP: 1.2.3.4, bandwidth: {rate: '0', burst: 1M}"), false},
	{"rate below 0", egress("appliedTo: {}, egressIP: 1.2.3.4, bandwidth: {rate: -1k, burst: 1M}"), false},
	{"no quantity", egress("appliedTo: {}, egressIP: 1.2.3.4, bandwidth: {rate: fast, burst: 1M}"), false},
	{"no burst", egress("appliedTo: {}, egressIP: 1.2.3.4, bandwidth: {rate: 1M}"), false},
	{"In without values", egress("appliedTo: {podSelector: {matchExpressions: [{key: x, operator: In}]}}, egressIP: 1.2.3.4"), false},
	{"Exists with values", egress("appliedTo: {podSelector: {matchExpressions: [{key: x, operator: Exists, values: [a]}]}}, egressIP: 1.2.3.4"), false},
	{"unknown operator", egress("appliedTo: {podSelector: {matchExpressions: [{key: x, operator: Like, values: [a]}]}}, egressIP: 1.2.3.4"), false},
	{"a label value that is none", egress("appliedTo: {podSelector: {matchLabels: {a: 'b c'}}}, egressIP: 1.2.3.4"), false},
	{"a selector that is a list", egress("appliedTo: {podSelector: [a]}, egressIP: 1.2.3.4"), false},

	{"CIDR", pool("ipRanges: [{cidr: 10.0.0.0/24}], nodeSelector: {}"), true},
	{"range", pool("ipRanges: [{start: 10.0.0.1, end: 10.0.0.9}, {cidr: 'fd00::/64'}], nodeSelector: {matchLabels: {a: b}}"), true},
	{"subnet", pool("ipRanges: [{start: 10.0.0.5, end: 10.0.0.9}], nodeSelector: {}, subnetInfo: {gateway: 10.0.0.1, prefixLength: 24, vlan: 5}"), true},
	{"no ranges", pool("ipRanges: [], nodeSelector: {}"), false},
	{"ranges missing", pool("nodeSelector: {}"), false},
	{"no selector", pool("ipRanges: [{cidr: 10.0.0.0/24}]"), false},
	{"CIDR and start", pool("ipRanges: [{cidr: 10.0.0.0/24, start: 10.0.0.1}], nodeSelector: {}"), false},
	{"start alone", pool("ipRanges: [{start: 10.0.0.1}], nodeSelector: {}"), false},
	{"nothing in a range", pool("ipRanges: [{}], nodeSelector: {}"), false},
	{"no network", pool("ipRanges: [{cidr: 10.0.0.0}], nodeSelector: {}"), false},
	{"no address in a range", pool("ipRanges: [{start: a, end: b}], nodeSelector: {}"), false},
	{"no gateway", pool("ipRanges: [{cidr: 10.0.0.0/24}], nodeSelector: {}, subnetInfo: {prefixLength: 24}"), false},
	{"length of an address", pool("ipRanges: [{start: 10.0.0.5, end: 10.0.0.9}], nodeSelector: {}, subnetInfo: {gateway: 10.0.0.5, prefixLength: 32}"), false},
	{"length 0", pool("ipRanges: [{cidr: 10.0.0.0/24}], nodeSelector: {}, subnetInfo: {gateway: 10.0.0.1, prefixLength: 0}"), false},
	{"VLAN 4095", pool("ipRanges: [{cidr: 10.0.0.0/24}], nodeSelector: {}, subnetInfo: {gateway: 10.0.0.1, prefixLength: 24, vlan: 4095}"), false},
}

// The schemas and the simulated Kubernetes agree about new objects.
func TestNew(t *testing.T) {
	defs := definitions(t)
	for _, c := range cases {
		_, err := newCluster(t).Apply([]byte(c.text), "case.yaml")
		if (err == nil) != c.valid {
			t.Errorf("%s: the simulated Kubernetes says %v, want valid %v", c.name, err, c.valid)
		}
		o := parse(t, c.text)
		if list := defs[o["kind"].(string)].validate(t, o, nil); (len(list) == 0) != c.valid {
			t.Errorf("%s: the schema says %v, want valid %v", c.name, list.ToAggregate(), c.valid)
		}
	}
}

// And about changes: ranges only grow, and an Egress whose pool went may be without an address.
func TestChanged(t *testing.T) {
	defs := definitions(t)
	const one, two = "{cidr: 10.0.0.0/24}", "{start: 10.1.0.1, end: 10.1.0.9}"
	for _, c := range []struct {
		name, old, text string
		valid           bool
	}{
		{"another range", pool("ipRanges: [" + one + "], nodeSelector: {}"), pool("ipRanges: [" + two + ", " + one + "], nodeSelector: {}"), true},
		{"one range less", pool("ipRanges: [" + one + ", " + two + "], nodeSelector: {}"), pool("ipRanges: [" + one + "], nodeSelector: {}"), false},
		{"a range changed", pool("ipRanges: [" + one + "], nodeSelector: {}"), pool("ipRanges: [{cidr: 10.0.0.0/25}], nodeSelector: {}"), false},
		{"address cleared", egress("appliedTo: {}, egressIP: 1.2.3.4"), egress("appliedTo: {}"), true},
	} {
		k := newCluster(t)
		if _, err := k.Apply([]byte(c.old), "old.yaml"); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Apply([]byte(c.text), "case.yaml"); (err == nil) != c.valid {
			t.Errorf("%s: the simulated Kubernetes says %v, want valid %v", c.name, err, c.valid)
		}
		o := parse(t, c.text)
		if list := defs[o["kind"].(string)].validate(t, o, parse(t, c.old)); (len(list) == 0) != c.valid {
			t.Errorf("%s: the schema says %v, want valid %v", c.name, list.ToAggregate(), c.valid)
		}
	}
}

// What the scenarios apply, a cluster takes, too.
func TestScenarios(t *testing.T) {
	defs := definitions(t)
	n := 0
	err := filepath.WalkDir("../../scenarios", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".scenario") {
			return err
		}
		a, err := txtar.ParseFile(path)
		if err != nil {
			return err
		}
		for _, f := range a.Files {
			for _, doc := range strings.Split("\n"+string(f.Data), "\n---\n") {
				o, err := decode(doc)
				kind, isObject := o["kind"].(string)
				if err != nil || !isObject {
					continue // not a manifest, or one that is wrong on purpose
				}
				r := defs[kind]
				if _, refused := newCluster(t).Apply([]byte(doc), f.Name); r == nil || refused != nil {
					continue // by what else there is, or for good
				}
				n++
				if list := r.validate(t, o, nil); len(list) > 0 {
					t.Errorf("%s: %s: %v", path, f.Name, list.ToAggregate())
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 50 {
		t.Errorf("only %d objects were found in the scenarios", n)
	}
}

// What the agents and the controller write passes.
func TestStatus(t *testing.T) {
	defs := definitions(t)
	for _, text := range []string{
		`{kind: Egress, spec: {appliedTo: {}, egressIP: 1.2.3.4}, status: {egressNode: "", egressIP: ""}}`,
		`{kind: Egress, spec: {appliedTo: {}, egressIP: 1.2.3.4}, status: {egressNode: n1, egressIP: 1.2.3.4, conditions: [{type: IPAssigned, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z", reason: Assigned, message: m}, {type: IPAllocated, status: "False", lastTransitionTime: null}]}}`,
		`{kind: ExternalIPPool, spec: {ipRanges: [{cidr: 10.0.0.0/24}], nodeSelector: {}}, status: {usage: {total: 5, used: 0}}}`,
		`{kind: EgressGroup, groupMembers: [{pod: {namespace: a, name: b}}]}`, `{kind: EgressGroup}`,
	} {
		o := parse(t, text)
		if list := defs[o["kind"].(string)].validate(t, o, nil); len(list) > 0 {
			t.Errorf("%s: %v", text, list.ToAggregate())
		}
	}
	bad := parse(t, `{kind: Egress, spec: {appliedTo: {}, egressIP: 1.2.3.4}, status: {egressNode: n1, egressIP: nobody}}`)
	if len(defs["Egress"].validate(t, bad, nil)) == 0 {
		t.Error("an address that is none passed")
	}
}
