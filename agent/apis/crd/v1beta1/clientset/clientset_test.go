package clientset_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/apis/crd/v1beta1/clientset"
	"towtank/agent/apis/crd/v1beta1/clientset/fake"
)

// The client asks the paths that Kubernetes serves the resources on, the status among them.
func TestPaths(t *testing.T) {
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&v1beta1.Egress{
			TypeMeta:   metav1.TypeMeta{APIVersion: "crd.antrea.io/v1beta1", Kind: "Egress"},
			ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1beta1.EgressSpec{EgressIP: "10.0.0.1"},
		})
	}))
	defer server.Close()
	c, err := clientset.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Egresses().Get(context.Background(), "web", metav1.GetOptions{})
	if err != nil || e.Spec.EgressIP != "10.0.0.1" {
		t.Fatalf("got %+v, %v", e, err)
	}
	if _, err := c.Egresses().UpdateStatus(context.Background(), e, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"GET /apis/crd.antrea.io/v1beta1/egresses/web",
		"PUT /apis/crd.antrea.io/v1beta1/egresses/web/status",
	}
	if len(paths) != 2 || paths[0] != want[0] || paths[1] != want[1] {
		t.Errorf("asked %q, want %q", paths, want)
	}
}

// The fake clients work over client-go's object tracker.
func TestFake(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &ktesting.Fake{}
	f.AddReactor("*", "*", ktesting.ObjectReaction(ktesting.NewObjectTracker(scheme, nil)))
	var c clientset.Interface = &fake.Clientset{Fake: f}
	ctx := context.Background()
	if _, err := c.ExternalIPPools().Create(ctx, &v1beta1.ExternalIPPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l, err := c.ExternalIPPools().List(ctx, metav1.ListOptions{})
	if err != nil || len(l.Items) != 1 || l.Items[0].Name != "p" {
		t.Errorf("list: %+v, %v", l, err)
	}
	if l, err := c.Egresses().List(ctx, metav1.ListOptions{}); err != nil || len(l.Items) != 0 {
		t.Errorf("list: %+v, %v", l, err)
	}
}
