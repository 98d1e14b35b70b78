package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/apis/crd/v1beta1/clientset"
	"towtank/e2e/apiserver"
	"towtank/e2e/apiserver/apitest"
	"towtank/sim"
	"towtank/sim/kube"
)

// running is a server on loopback.
type running struct {
	*apiserver.Server
	url string
}

func serve(t *testing.T, cfg apiserver.Config) *running {
	t.Helper()
	s, url := apitest.Serve(t, cfg)
	return &running{s, url}
}

// clients of one name.
func (s *running) clients(t *testing.T, name string) (kubernetes.Interface, clientset.Interface) {
	t.Helper()
	return clientsOf(t, s.RESTConfig(name, s.url))
}

func clientsOf(t *testing.T, c *rest.Config) (kubernetes.Interface, clientset.Interface) {
	t.Helper()
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	crd, err := clientset.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return k, crd
}

func (s *running) apply(t *testing.T, yaml string) {
	t.Helper()
	s.Do(func(c *kube.Cluster) {
		if _, err := c.Apply([]byte(yaml), "test.yaml"); err != nil {
			t.Fatal(err)
		}
	})
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// ctx bounds a test's requests.
func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// next returns the next events of a watch as texts, and fails if they do not come.
func next(t *testing.T, w watch.Interface, n int) []string {
	t.Helper()
	var out []string
	late := time.After(10 * time.Second)
	for len(out) < n {
		select {
		case e, open := <-w.ResultChan():
			if !open {
				return append(out, "closed")
			}
			out = append(out, text(e))
		case <-late:
			t.Fatalf("after 10 s: %v, and %d more wanted", out, n-len(out))
		}
	}
	return out
}

func text(e watch.Event) string {
	if st, ok := e.Object.(*metav1.Status); ok {
		return fmt.Sprintf("%s %s", e.Type, st.Reason)
	}
	if m, ok := e.Object.(metav1.Object); ok {
		return string(e.Type) + " " + m.GetName()
	}
	return string(e.Type)
}

func expect(t *testing.T, w watch.Interface, want ...string) {
	t.Helper()
	if got := next(t, w, len(want)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// silent fails if a watch has something to say within a short time.
func silent(t *testing.T, w watch.Interface) {
	t.Helper()
	select {
	case e, open := <-w.ResultChan():
		t.Errorf("got %s (open %v), want silence", text(e), open)
	case <-time.After(150 * time.Millisecond):
	}
}

// The typed clients see an API server: defaults, validation, conflicts, the status subresource, and the error
// bodies that client-go makes its errors of. Whether it is the simulator's is seen by the cluster IP.
func TestCalls(t *testing.T) {
	s, ctx := serve(t, apiserver.Config{}), limit(t)
	k, crd := s.clients(t, "n1")
	services := k.CoreV1().Services("default")
	svc, err := services.Create(ctx, service("a"), metav1.CreateOptions{})
	if err != nil || svc.Spec.ClusterIP != "10.96.0.2" {
		t.Fatalf("created %+v, %v", svc, err)
	}
	if _, err := services.Create(ctx, service("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("again: %v", err)
	}
	bad := service("b")
	bad.Spec.Ports[0].Port = 0
	if _, err := services.Create(ctx, bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.ports[0].port") {
		t.Errorf("invalid: %v", err)
	}
	if _, err := k.CoreV1().Services("nowhere").Create(ctx, service("a"), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("in a namespace that is not there: %v", err)
	}
	svc.Labels["x"] = "y"
	if _, err := services.Update(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update: %v", err)
	}
	if _, err := services.Update(ctx, svc, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: %v", err)
	}
	if got, err := services.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"type":"NodePort"}}`), metav1.PatchOptions{}); err != nil || got.Spec.Ports[0].NodePort == 0 {
		t.Errorf("patch: %+v, %v", got, err)
	}
	if _, err := services.Patch(ctx, "a", types.JSONPatchType, []byte(`[]`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("a JSON patch: %v", err)
	}
	l, err := services.List(ctx, metav1.ListOptions{LabelSelector: "name=a"})
	if err != nil || len(l.Items) != 1 || l.ResourceVersion == "" {
		t.Errorf("list: %+v, %v", l, err)
	}
	if l, err := services.List(ctx, metav1.ListOptions{FieldSelector: "spec.type=NodePort,spec.clusterIP!=None"}); err != nil || len(l.Items) != 1 {
		t.Errorf("Services of a type with an address: %+v, %v", l, err)
	}
	if l, err := services.List(ctx, metav1.ListOptions{FieldSelector: "spec.type=ClusterIP"}); err != nil || len(l.Items) != 0 {
		t.Errorf("Services of another type: %+v, %v", l, err)
	}
	if _, err := services.List(ctx, metav1.ListOptions{FieldSelector: "spec.sessionAffinity=None"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that is no selector: %v", err)
	}
	other := types.UID("another")
	if err := services.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("deletion of another one: %v", err)
	}
	if err := services.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := services.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of what is gone: %v", err)
	}

	e, err := crd.Egresses().Create(ctx, &v1beta1.Egress{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Spec: v1beta1.EgressSpec{EgressIP: "1.1.1.1"}}, metav1.CreateOptions{})
	if err != nil || e.Generation != 1 {
		t.Fatalf("egress: %+v, %v", e, err)
	}
	e.Spec.EgressIP, e.Status.EgressNode = "2.2.2.2", "n1"
	old := e.ResourceVersion
	if e, err = crd.Egresses().UpdateStatus(ctx, e, metav1.UpdateOptions{}); err != nil || e.Spec.EgressIP != "1.1.1.1" || e.Status.EgressNode != "n1" || e.Generation != 1 {
		t.Errorf("status: %+v, %v", e, err)
	}
	e.ResourceVersion = old
	if _, err := crd.Egresses().UpdateStatus(ctx, e, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("status of an old version: %v", err)
	}
	e.ResourceVersion = ""
	if _, err := crd.Egresses().Update(ctx, e, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("custom resource without a version: %v", err)
	}
	if e, err = crd.Egresses().Patch(ctx, "e", types.MergePatchType, []byte(`{"spec":{"egressIP":"3.3.3.3"},"status":{"egressNode":"n9"}}`), metav1.PatchOptions{}, "status"); err != nil ||
		e.Spec.EgressIP != "1.1.1.1" || e.Status.EgressNode != "n9" {
		t.Errorf("patch of the status: %+v, %v", e, err)
	}
	found, err := k.Discovery().ServerResourcesForGroupVersion("crd.antrea.io/v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range found.APIResources {
		names = append(names, r.Name)
	}
	for _, want := range []string{"egresses", "egresses/status", "externalippools", "externalippools/status", "egressgroups"} {
		if !slices.Contains(names, want) {
			t.Errorf("discovery: %v, want %s among them", names, want)
		}
	}
}

// Who has no token, or asks for what is not there, is told so as an API server does.
func TestRefused(t *testing.T) {
	s, ctx := serve(t, apiserver.Config{}), limit(t)
	guessing := s.RESTConfig("n1", s.url)
	guessing.BearerToken = "guessed"
	nobody, _ := clientsOf(t, guessing)
	if _, err := nobody.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token of nobody: %v", err)
	}
	k, _ := s.clients(t, "n1")
	for path, want := range map[string]int32{
		"/api/v1/elephants": http.StatusNotFound, "/api/v1/namespaces/default/pods/x/exec": http.StatusNotFound, "/apis/apps/v2/deployments": http.StatusNotFound,
		"/api/v1/namespaces/default/configmaps/x/status": http.StatusNotFound, "/": http.StatusNotFound, "/api/v1/pods/x": http.StatusNotFound,
	} {
		err := k.CoreV1().RESTClient().Get().AbsPath(path).Do(ctx).Error()
		var st apierrors.APIStatus
		if !errors.As(err, &st) || st.Status().Code != want {
			t.Errorf("%s: %v, want %d", path, err, want)
		}
	}
	if err := k.CoreV1().RESTClient().Delete().AbsPath("/api/v1/nodes").Do(ctx).Error(); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("deletion of all: %v", err)
	}
}

// A watch that begins at the version of a list misses nothing that was written between, and sees objects come
// and go as its selector does; without a version it begins with what is there.
func TestWatch(t *testing.T) {
	s, ctx := serve(t, apiserver.Config{}), limit(t)
	k, _ := s.clients(t, "n1")
	services := k.CoreV1().Services("default")
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
	all, err := services.Watch(ctx, metav1.ListOptions{ResourceVersion: l.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Stop()
	selected, err := services.Watch(ctx, metav1.ListOptions{LabelSelector: "name=a"})
	if err != nil {
		t.Fatal(err)
	}
	defer selected.Stop()
	expect(t, selected, "ADDED a")
	_, _ = services.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"name":"x"}}}`), metav1.PatchOptions{})
	expect(t, all, "DELETED b", "ADDED c", "MODIFIED a")
	expect(t, selected, "DELETED a")

	short, err := services.Watch(ctx, metav1.ListOptions{ResourceVersion: l.ResourceVersion, TimeoutSeconds: new(int64(1))})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, short, "DELETED b", "ADDED c", "MODIFIED a", "closed")

	if _, err := services.Watch(ctx, metav1.ListOptions{ResourceVersion: "1000000"}); !apierrors.IsTimeout(err) {
		t.Errorf("a version to come: %v", err)
	}
}

// A version that the history has forgotten is 410 Gone: at the begin of a watch, and for one that fell behind.
func TestTooOld(t *testing.T) {
	s, ctx := serve(t, apiserver.Config{History: 10}), limit(t)
	k, _ := s.clients(t, "n1")
	services := k.CoreV1().Services("default")
	l, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Watch("n1", "hold", []kube.Kind{kube.KindService}, 0); err != nil {
		t.Fatal(err)
	}
	behind, err := services.Watch(ctx, metav1.ListOptions{ResourceVersion: l.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Stop()
	for i := range 40 {
		s.apply(t, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: s%d}, spec: {ports: [{port: 80}]}}", i))
	}
	if err := s.Watch("n1", "release", nil, 0); err != nil {
		t.Fatal(err)
	}
	expect(t, behind, "ERROR "+string(metav1.StatusReasonExpired), "closed")
	if _, err := services.Watch(ctx, metav1.ListOptions{ResourceVersion: l.ResourceVersion}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a new watch: %v", err)
	}
}

// Hold keeps writes back and in order, with a count so many pass; the other client notices nothing.
func TestHold(t *testing.T) {
	s, ctx := serve(t, apiserver.Config{}), limit(t)
	watches := map[string]watch.Interface{}
	for _, name := range []string{"n1", "n2"} {
		k, _ := s.clients(t, name)
		l, err := k.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := k.CoreV1().Services("").Watch(ctx, metav1.ListOptions{ResourceVersion: l.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watches[name] = w
	}
	op := func(op string, count int) {
		t.Helper()
		if err := s.Watch("n1", op, []kube.Kind{kube.KindService}, count); err != nil {
			t.Fatal(err)
		}
	}
	op("hold", 0)
	if !s.Faulted("n1") || s.Faulted("n2") {
		t.Error("n1 is faulted, n2 is not")
	}
	for _, n := range []string{"a", "b", "c"} {
		s.apply(t, "{apiVersion: v1, kind: Service, metadata: {name: "+n+"}, spec: {ports: [{port: 80}]}}")
	}
	expect(t, watches["n2"], "ADDED a", "ADDED b", "ADDED c")
	silent(t, watches["n1"])
	op("release", 2)
	expect(t, watches["n1"], "ADDED a", "ADDED b")
	silent(t, watches["n1"])
	op("release", 0)
	expect(t, watches["n1"], "ADDED c")
	if s.Faulted("n1") {
		t.Error("n1 is still faulted")
	}
	if err := s.Watch("n1", "shut", nil, 0); err == nil {
		t.Error("an unknown word passed")
	}
}

// A client that is cut off gets no answer; its watch is silent and goes on where it was. The other one does
// not notice.
func TestCut(t *testing.T) {
	s, ctx := serve(t, apiserver.Config{}), limit(t)
	k, crd := s.clients(t, "n1")
	w, err := k.CoreV1().Services("").Watch(ctx, metav1.ListOptions{ResourceVersion: "2"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	s.apply(t, "{apiVersion: crd.antrea.io/v1beta1, kind: Egress, metadata: {name: e}, spec: {appliedTo: {}, egressIP: 1.1.1.1}}")
	e, err := crd.Egresses().Get(ctx, "e", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.SetReachable("n1", false)
	s.apply(t, "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}]}}")
	silent(t, w)
	var st apierrors.APIStatus
	if _, err := crd.Egresses().UpdateStatus(ctx, e, metav1.UpdateOptions{}); err == nil || errors.As(err, &st) {
		t.Errorf("a write: %v, want an error of the connection", err)
	}
	_, other := s.clients(t, "n2")
	if _, err := other.Egresses().Get(ctx, "e", metav1.GetOptions{}); err != nil {
		t.Errorf("n2: %v", err)
	}
	listed := make(chan error, 1)
	go func() {
		_, err := k.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		listed <- err
	}()
	select {
	case err := <-listed:
		t.Errorf("a list of a client that is cut off: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	s.SetReachable("n1", true)
	expect(t, w, "ADDED a")
	if err := <-listed; err != nil {
		t.Errorf("the list that waited: %v", err)
	}
}

// Faults hit the requests of one client, counted from when they were set, as in the simulator.
func TestFaults(t *testing.T) {
	var mu sync.Mutex
	var killed []string
	s, ctx := serve(t, apiserver.Config{Unanswered: 50 * time.Millisecond, Kill: func(name string) {
		mu.Lock()
		defer mu.Unlock()
		killed = append(killed, name)
	}}), limit(t)
	s.apply(t, "{apiVersion: crd.antrea.io/v1beta1, kind: Egress, metadata: {name: e}, spec: {appliedTo: {}, egressIP: 1.1.1.1}}")
	_, crd := s.clients(t, "n1")
	_, other := s.clients(t, "n2")
	node := func() string {
		var e v1beta1.Egress
		s.Do(func(c *kube.Cluster) {
			o, err := c.Get(kube.KindEgress, "", "e")
			if err != nil {
				t.Fatal(err)
			}
			e = *o.(*v1beta1.Egress)
		})
		return e.Status.EgressNode
	}
	write := func(c clientset.Interface, node string) error {
		e, err := c.Egresses().Get(ctx, "e", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		e.Status.EgressNode = node
		_, err = c.Egresses().UpdateStatus(ctx, e, metav1.UpdateOptions{})
		return err
	}
	s.AddFault("n1", sim.Fault{Effect: sim.EffectAPIStatus, Skip: 1})
	if err := write(crd, "one"); err != nil {
		t.Errorf("the one that passes: %v", err)
	}
	if err := write(other, "two"); err != nil || node() != "two" {
		t.Errorf("another client: %v, %s", err, node())
	}
	if err := write(crd, "three"); !apierrors.IsInternalError(err) || node() != "two" {
		t.Errorf("refuse: %v, %s", err, node())
	}
	if err := write(crd, "four"); err != nil || node() != "four" {
		t.Errorf("after it: %v, %s", err, node())
	}
	for _, c := range []struct {
		mode sim.FaultMode
		is   func(error) bool
		done bool
	}{
		{sim.Conflict, apierrors.IsConflict, false}, {sim.Timeout, apierrors.IsTimeout, false}, {sim.LostReply, apierrors.IsTimeout, true},
		{sim.Die, isConnection, false}, {sim.DieAfter, isConnection, true},
	} {
		was := node()
		s.AddFault("n1", sim.Fault{Effect: sim.EffectAPIStatus, Mode: c.mode})
		if !s.Unspent("n1") {
			t.Errorf("%s: spent before it hit", c.mode)
		}
		want := was
		if c.done {
			want = string(c.mode)
		}
		if err := write(crd, string(c.mode)); !c.is(err) || node() != want {
			t.Errorf("%s: %v, the status says %s, want %s", c.mode, err, node(), want)
		}
		if s.Unspent("n1") {
			t.Errorf("%s: not spent", c.mode)
		}
	}
	mu.Lock()
	if !slices.Equal(killed, []string{"n1", "n1"}) {
		t.Errorf("killed: %v", killed)
	}
	mu.Unlock()
	s.AddFault("n1", sim.Fault{Effect: sim.EffectAPIGet, Count: 2})
	if _, err := crd.Egresses().Get(ctx, "e", metav1.GetOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("get: %v", err)
	}
	if got := s.UnusedFaults(); len(got) != 1 || !strings.HasPrefix(got[0], "n1 api-get") {
		t.Errorf("unused: %v", got)
	}
	s.ClearFaults("n1")
	if _, err := crd.Egresses().Get(ctx, "e", metav1.GetOptions{}); err != nil {
		t.Errorf("after clear: %v", err)
	}
	s.Mark()
	_ = write(crd, "last")
	var classes []string
	for _, e := range s.MarkedJournal("n1") {
		classes = append(classes, e.Class)
	}
	if !slices.Equal(classes, []string{sim.EffectAPIGet, sim.EffectAPIStatus}) || len(s.Journal("n1")) <= 2 || len(s.MarkedJournal("n2")) != 0 {
		t.Errorf("journal: %v", classes)
	}
}

// isConnection reports whether an error is one of the connection, not an answer.
func isConnection(err error) bool {
	var st apierrors.APIStatus
	return err != nil && !errors.As(err, &st)
}

// The kubeconfig file of a client leads to the server.
func TestKubeconfig(t *testing.T) {
	s := serve(t, apiserver.Config{})
	path := t.TempDir() + "/config"
	if err := s.WriteKubeconfig(path, "n1", s.url); err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	k, _ := clientsOf(t, c)
	if _, err := k.CoreV1().Namespaces().Get(limit(t), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	want := []apiserver.Access{{Verb: "get", Resource: "namespaces"}}
	if got := s.Accesses("n1"); !slices.Equal(got, want) {
		t.Errorf("accesses: %v", got)
	}
}
