package deploy_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/shell/daemon"
	"towtank/deploy"
	"towtank/sim/kube"
)

// applied returns a cluster to which all manifests were applied: unknown fields, wrong types and selectors that
// do not match their templates are errors of that.
func applied(t *testing.T) *kube.Cluster {
	t.Helper()
	c, err := kube.New(kube.Config{Now: time.Now, IPv4: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"crds.yaml": deploy.CRDs, "ovs.yaml": deploy.OVS, "agent.yaml": deploy.Agent, "controller.yaml": deploy.Controller} {
		results, err := c.Apply(data, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Action != "created" {
				t.Errorf("%s: %s: given twice", name, r)
			}
		}
	}
	return c
}

func get[T runtime.Object](t *testing.T, c *kube.Cluster, kind kube.Kind, name string) T {
	t.Helper()
	o, err := c.Get(kind, "kube-system", name)
	if err != nil {
		t.Fatal(err)
	}
	return o.(T)
}

// The manifests are objects, and what they name is there: volumes, ServiceAccounts, keys of the ConfigMap.
func TestManifests(t *testing.T) {
	c := applied(t)
	agent := get[*appsv1.DaemonSet](t, c, kube.KindDaemonSet, "towtank-agent").Spec.Template.Spec
	controller := get[*appsv1.Deployment](t, c, kube.KindDeployment, "towtank-controller").Spec.Template.Spec
	ovs := get[*appsv1.DaemonSet](t, c, kube.KindDaemonSet, "towtank-ovs").Spec.Template.Spec
	for name, spec := range map[string]corev1.PodSpec{"agent": agent, "controller": controller, "ovs": ovs} {
		if name != "ovs" { // which asks Kubernetes nothing
			get[*corev1.ServiceAccount](t, c, "ServiceAccount", spec.ServiceAccountName)
		}
		volumes, used := map[string]bool{}, map[string]bool{}
		for _, v := range spec.Volumes {
			volumes[v.Name] = true
			if v.ConfigMap != nil {
				get[*corev1.ConfigMap](t, c, "ConfigMap", v.ConfigMap.Name)
			}
		}
		for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
			if strings.ContainsAny(container.Image, "/") {
				t.Errorf("%s: image %s names a registry", name, container.Image)
			}
			if _, tag, ok := strings.Cut(container.Image, ":"); !ok || tag == "latest" || container.ImagePullPolicy != corev1.PullIfNotPresent {
				t.Errorf("%s: image %s with pull policy %q: what is loaded into a node by hand would not be used", name, container.Image, container.ImagePullPolicy)
			}
			for _, m := range container.VolumeMounts {
				if used[m.Name] = true; !volumes[m.Name] {
					t.Errorf("%s: container %s mounts %s, which is no volume", name, container.Name, m.Name)
				}
			}
		}
		if !maps.Equal(volumes, used) {
			t.Errorf("%s: volumes %v, mounted %v", name, volumes, used)
		}
	}
}

// The settings of the ConfigMap are settings, and the CNI configuration names our plugin.
func TestConfigMap(t *testing.T) {
	files := get[*corev1.ConfigMap](t, applied(t), "ConfigMap", "towtank-agent").Data
	path := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte(files["settings.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := daemon.ReadSettings(path)
	if err != nil || len(s.ServiceCIDRs) != 1 {
		t.Errorf("settings: %+v, %v", s, err)
	}
	var cni struct {
		Plugins []struct{ Type string }
	}
	if err := yaml.Unmarshal([]byte(files["10-towtank.conflist"]), &cni); err != nil || len(cni.Plugins) == 0 || cni.Plugins[0].Type != "towtank-cni" {
		t.Errorf("CNI configuration: %+v, %v", cni, err)
	}
}

// schemaOf is the part of a schema that is compared with the Go types.
type schemaOf struct {
	Type                 string              `json:"type"`
	Properties           map[string]schemaOf `json:"properties"`
	Items                *schemaOf           `json:"items"`
	AdditionalProperties *schemaOf           `json:"additionalProperties"`
	Required             []string            `json:"required"`
}

// Every field of the types is in the schemas with its type, and the other way round: the API server drops what a
// schema does not know. Whether values are valid is compared by the module crdtest.
func TestSchemas(t *testing.T) {
	types := map[string]any{"Egress": v1beta1.Egress{}, "ExternalIPPool": v1beta1.ExternalIPPool{}, "EgressGroup": v1beta1.EgressGroup{}}
	for _, doc := range bytes.Split(deploy.CRDs, []byte("\n---\n")) {
		var crd struct {
			Metadata metav1.ObjectMeta
			Spec     struct {
				Group    string
				Names    struct{ Kind, Plural string }
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema schemaOf }
				}
			}
		}
		if err := yaml.Unmarshal(doc, &crd); err != nil {
			t.Fatal(err)
		}
		kind := crd.Spec.Names.Kind
		k, ok := kube.KindOfResource(kube.Kind(kind).Resource())
		if !ok || k.Resource().Resource != crd.Spec.Names.Plural || crd.Spec.Group+"/"+crd.Spec.Versions[0].Name != k.APIVersion() {
			t.Errorf("%s: %s of %s is not the resource that the clients use", crd.Metadata.Name, crd.Spec.Names.Plural, crd.Spec.Group)
		}
		compare(t, kind, reflect.TypeOf(types[kind]), crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		delete(types, kind)
	}
	for kind := range types {
		t.Errorf("%s has no definition", kind)
	}
}

// compare compares a type with a schema, field by field.
func compare(t *testing.T, path string, typ reflect.Type, s schemaOf) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ == reflect.TypeFor[metav1.ObjectMeta]() {
		return // the API server's own
	}
	want := map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Int32: "integer", reflect.Slice: "array", reflect.Struct: "object", reflect.Map: "object"}[typ.Kind()]
	if typ == reflect.TypeFor[metav1.Time]() {
		want = "string"
	}
	if s.Type != want {
		t.Errorf("%s: the schema says %q, the type is %s", path, s.Type, typ)
	}
	switch {
	case want == "array" && s.Items != nil:
		compare(t, path+"[]", typ.Elem(), *s.Items)
	case typ.Kind() == reflect.Map && s.AdditionalProperties != nil:
		compare(t, path+"{}", typ.Elem(), *s.AdditionalProperties)
	case want == "object" && typ.Kind() == reflect.Struct:
		fields := jsonFields(typ)
		for name, f := range fields {
			p, ok := s.Properties[name]
			if !ok {
				t.Errorf("%s.%s is not in the schema", path, name)
				continue
			}
			compare(t, path+"."+name, f, p)
		}
		for name := range s.Properties {
			if fields[name] == nil {
				t.Errorf("%s.%s is in the schema only", path, name)
			}
		}
		for _, name := range s.Required {
			if fields[name] == nil {
				t.Errorf("%s.%s is required and not there", path, name)
			}
		}
	case typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map:
		t.Errorf("%s: the schema does not say of what", path)
	}
}

func jsonFields(typ reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			maps.Copy(out, jsonFields(f.Type))
			continue
		}
		out[name] = f.Type
	}
	return out
}

// The README builds the image that the Job runs, and pushes what it built.
func TestImageOfTheFuzzer(t *testing.T) {
	image := regexp.MustCompile(`(?:REGISTRY/)?(towtank[a-z-]*:[0-9.]+)`)
	names := map[string]bool{}
	for _, file := range []string{"fuzz/README.md", "fuzz/Dockerfile", "fuzz/job.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := image.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no image", file)
		}
		for _, m := range found {
			names[m[1]] = true
		}
	}
	if len(names) != 1 {
		t.Errorf("the images are %v, want one", slices.Sorted(maps.Keys(names)))
	}
}
