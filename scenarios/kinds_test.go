package scenarios_test

import (
	"testing"

	"towtank/scenarios/lang"
	"towtank/sim/kube"
)

// A kind can be written as the API server names it: in any case, in the plural, and by its short names, and an
// object without a namespace is in default, if its kind has namespaces.
func TestKindsAsKubectlNamesThem(t *testing.T) {
	for _, kind := range lang.Kinds {
		k, err := kube.KindNamed(kind)
		if err != nil {
			t.Error(err)
			continue
		}
		want := lang.ObjectRef{Kind: kind, Name: "x"}
		if k.Namespaced() {
			want.Namespace = "default"
		}
		for _, word := range append([]string{string(k), k.Resource().Resource}, kube.ShortNames(k)...) {
			f, err := lang.Parse("x.scenario", []byte("nodes n1\ndelete "+word+" x\n"))
			if err != nil {
				t.Errorf("delete %s: %v", word, err)
				continue
			}
			if got := f.Lines[len(f.Lines)-1].Step.(lang.Delete).Object; got != want {
				t.Errorf("delete %s x: got %+v, want %+v", word, got, want)
			}
		}
	}
}
