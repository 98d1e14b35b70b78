package clients_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/sim/kube"
	"towtank/sim/kube/clients"
)

func newClients(t *testing.T) *clients.Clients {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c, err := kube.New(kube.Config{Now: func() time.Time { return now }, IPv4: true})
	if err != nil {
		t.Fatal(err)
	}
	return clients.New(c)
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// The typed clients see an API server: defaults, validation, conflicts, the status subresource.
func TestCalls(t *testing.T) {
	cl, ctx := newClients(t), context.Background()
	services := cl.Kubernetes.CoreV1().Services("default")
	s, err := services.Create(ctx, service("a"), metav1.CreateOptions{})
	if err != nil || s.Spec.ClusterIP != "10.96.0.2" {
		t.Fatalf("created %+v, %v", s, err)
	}
	if _, err := services.Create(ctx, service("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("again: %v", err)
	}
	bad := service("b")
	bad.Spec.Ports[0].Port = 0
	if _, err := services.Create(ctx, bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("invalid: %v", err)
	}
	s.Labels["x"] = "y" // a copy: the stored one must not see it
	if got, _ := services.Get(ctx, "a", metav1.GetOptions{}); got.Labels["x"] != "" {
		t.Error("the client's object is the stored one")
	}
	if _, err := services.Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update: %v", err)
	}
	if _, err := services.Update(ctx, s, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: %v", err)
	}
	if _, err := services.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"type":"NodePort"}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("patch: %v", err)
	}
	if _, err := services.Patch(ctx, "a", types.JSONPatchType, []byte(`[]`), metav1.PatchOptions{}); err == nil {
		t.Error("a JSON patch passed")
	}

	e, err := cl.CRD.Egresses().Create(ctx, &v1beta1.Egress{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Spec: v1beta1.EgressSpec{EgressIP: "1.1.1.1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.Spec.EgressIP, e.Status.EgressNode = "2.2.2.2", "n1"
	if e, err = cl.CRD.Egresses().UpdateStatus(ctx, e, metav1.UpdateOptions{}); err != nil || e.Spec.EgressIP != "1.1.1.1" || e.Status.EgressNode != "n1" {
		t.Errorf("status: %+v, %v", e, err)
	}
	l, err := cl.Kubernetes.CoreV1().Services("").List(ctx, metav1.ListOptions{LabelSelector: "name=a"})
	if err != nil || len(l.Items) != 1 || l.ResourceVersion == "" {
		t.Errorf("list: %+v, %v", l, err)
	}
	if err := services.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := services.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of what is gone: %v", err)
	}
}

// A watch that begins at the version of a list misses nothing that was written between, and sees objects
// come and go as its selector does.
func TestWatch(t *testing.T) {
	cl, ctx := newClients(t), context.Background()
	services := cl.Kubernetes.CoreV1().Services("default")
	for _, n := range []string{"a", "b"} {
		if _, err := services.Create(ctx, service(n), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_ = services.Delete(ctx, "b", metav1.DeleteOptions{})
	_, _ = services.Create(ctx, service("c"), metav1.CreateOptions{})
	w, err := services.Watch(ctx, metav1.ListOptions{ResourceVersion: l.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	selected, err := services.Watch(ctx, metav1.ListOptions{LabelSelector: "name=a"})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = services.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"name":"x"}}}`), metav1.PatchOptions{})
	expect := func(w watch.Interface, want ...string) {
		t.Helper()
		for _, x := range want {
			e := <-w.ResultChan()
			if got := string(e.Type) + " " + e.Object.(*corev1.Service).Name; got != x {
				t.Errorf("got %s, want %s", got, x)
			}
		}
		if n := len(w.ResultChan()); n != 0 {
			t.Errorf("%d more events", n)
		}
	}
	expect(w, "DELETED b", "ADDED c", "MODIFIED a")
	expect(selected, "ADDED a", "DELETED a")
	w.Stop()
	w.Stop()
	_ = services.Delete(ctx, "c", metav1.DeleteOptions{})
	if _, open := <-w.ResultChan(); open {
		t.Error("an event after Stop")
	}
}

// client-go's informers work over the clients.
func TestInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newClients(t)
		ctx, cancel := context.WithCancel(context.Background())
		services := cl.Kubernetes.CoreV1().Services("default")
		if _, err := services.Create(ctx, service("a"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		factory := informers.NewSharedInformerFactory(cl.Kubernetes, 0)
		lister := factory.Core().V1().Services().Lister()
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		_, _ = services.Create(ctx, service("b"), metav1.CreateOptions{})
		_ = services.Delete(ctx, "a", metav1.DeleteOptions{})
		synctest.Wait()
		if _, err := lister.Services("default").Get("b"); err != nil {
			t.Error(err)
		}
		if _, err := lister.Services("default").Get("a"); !apierrors.IsNotFound(err) {
			t.Errorf("a: %v", err)
		}
		cancel()
		factory.Shutdown()
	})
}
