package apiserver_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"towtank/agent/shell"
	"towtank/e2e/apiserver"
	"towtank/sim/kube"
)

// log has what an informer told, in order.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(format string, a ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, a...))
}

func (l *log) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// eventually fails if a condition does not hold within 20 s: a reflector backs off for seconds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	gomega.NewWithT(t).Eventually(ok, "20s", "10ms").Should(gomega.BeTrue(), what)
}

// watching runs an informer of Services as a client.
func watching(t *testing.T, s *running, name string) (*log, cache.SharedIndexInformer) {
	t.Helper()
	k, _ := s.clients(t, name)
	factory := informers.NewSharedInformerFactory(k, 0)
	i := factory.Core().V1().Services().Informer()
	l := &log{}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { l.add("add %s", o.(*corev1.Service).Name) },
		UpdateFunc: func(_, o any) { l.add("update %s %s", o.(*corev1.Service).Name, o.(*corev1.Service).Labels["v"]) },
		DeleteFunc: func(o any) {
			if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
				l.add("missed deletion of %s", d.Key)
				return
			}
			l.add("delete %s", o.(*corev1.Service).Name)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	return l, i
}

func (s *running) service(t *testing.T, name, v string) {
	t.Helper()
	s.apply(t, "{apiVersion: v1, kind: Service, metadata: {name: "+name+", labels: {v: '"+v+"'}}, spec: {ports: [{port: 80}]}}")
}

func (s *running) remove(t *testing.T, name string) {
	t.Helper()
	s.Do(func(c *kube.Cluster) {
		if err := c.Delete(kube.KindService, "default", name); err != nil {
			t.Fatal(err)
		}
	})
}

// An informer lists by a stream of initial events (KEP-3157), follows, and survives connections that break
// without missing or repeating anything.
func TestInformerResumes(t *testing.T) {
	s := serve(t, apiserver.Config{Bookmark: 20 * time.Millisecond})
	s.service(t, "a", "1")
	l, i := watching(t, s, "n1")
	if !cache.WaitForCacheSync(limit(t).Done(), i.HasSynced) {
		t.Fatal("not synced")
	}
	s.service(t, "a", "2")
	want := []string{"add a", "update a 2"}
	eventually(t, "the update", func() bool { return len(l.take()) == len(want) })
	s.Disconnect("n1")
	s.service(t, "b", "1")
	s.remove(t, "a")
	want = append(want, "add b", "delete a")
	eventually(t, "what was written while the connection was broken", func() bool { return len(l.take()) == len(want) })
	if got := l.take(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	lists := 0
	for _, a := range s.Accesses("n1") {
		if a.Verb == "list" {
			lists++
		}
	}
	if lists > 0 {
		t.Error("the informer fell back to a list: streamed lists are not understood")
	}
	eventually(t, "a bookmark beyond the last Service", func() bool {
		s.apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: other}}")
		var v uint64
		s.Do(func(c *kube.Cluster) { v = c.Version() })
		return i.LastSyncResourceVersion() == fmt.Sprint(v)
	})
}

// Close then release: what was written between is never delivered; the relist tells the difference, a deletion
// as a tombstone, several changes of one object as one.
func TestInformerRelists(t *testing.T) {
	s := serve(t, apiserver.Config{})
	for _, n := range []string{"a", "b"} {
		s.service(t, n, "1")
	}
	l, i := watching(t, s, "n1")
	other, j := watching(t, s, "n2")
	if !cache.WaitForCacheSync(limit(t).Done(), i.HasSynced, j.HasSynced) {
		t.Fatal("not synced")
	}
	if err := s.Watch("n1", "close", []kube.Kind{kube.KindService}, 0); err != nil {
		t.Fatal(err)
	}
	s.remove(t, "a")
	for _, v := range []string{"2", "3", "4"} {
		s.service(t, "b", v)
	}
	s.service(t, "c", "1")
	eventually(t, "the other client", func() bool { return slices.Contains(other.take(), "add c") })
	if got := l.take(); len(got) != 2 {
		t.Errorf("while it is closed: %v", got)
	}
	if err := s.Watch("n1", "release", nil, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the relist", func() bool { return len(l.take()) >= 5 })
	got := l.take()[2:]
	slices.Sort(got)
	if want := []string{"add c", "missed deletion of default/a", "update b 4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := other.take(); slices.Contains(got, "missed deletion of default/a") || !slices.Contains(got, "update b 3") {
		t.Errorf("the other client: %v", got)
	}
}

// A client that starts while its watches are held lists as far as they let it.
func TestInformerStartsHeld(t *testing.T) {
	s := serve(t, apiserver.Config{})
	for _, n := range []string{"a", "b", "c"} {
		s.service(t, n, "1")
	}
	if err := s.Watch("n1", "hold", []kube.Kind{kube.KindService}, 0); err != nil {
		t.Fatal(err)
	}
	l, i := watching(t, s, "n1")
	listed := make(chan error, 1)
	k, _ := s.clients(t, "n1")
	go func() {
		_, err := k.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
		listed <- err
	}()
	select {
	case <-listed:
		t.Error("a list went by the hold")
	case <-time.After(200 * time.Millisecond):
	}
	if i.HasSynced() || len(l.take()) > 0 {
		t.Errorf("held: %v", l.take())
	}
	if err := s.Watch("n1", "release", []kube.Kind{kube.KindService}, 0); err != nil {
		t.Fatal(err)
	}
	if !cache.WaitForCacheSync(limit(t).Done(), i.HasSynced) {
		t.Fatal("not synced")
	}
	if err := <-listed; err != nil {
		t.Error(err)
	}
}

// A recorder's Events are written, and counted up, as client-go does it: in protobuf, and by strategic patches.
func TestRecorder(t *testing.T) {
	s := serve(t, apiserver.Config{})
	k, _ := s.clients(t, "n1")
	b := record.NewBroadcaster()
	defer b.Shutdown()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: k.CoreV1().Events("")})
	r := b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "towtank-agent", Host: "n1"})
	for range 3 {
		r.Event(&corev1.ObjectReference{Kind: "Egress", Name: "e"}, "Warning", "Broken", "it broke")
	}
	eventually(t, "an Event with count 3", func() bool {
		var got []kube.RecordedEvent
		s.Do(func(c *kube.Cluster) { got = c.Events(kube.KindEgress, "", "e") })
		return len(got) == 1 && got[0].Count == 3 && got[0].Reason == "Broken" && got[0].Source == "n1"
	})
	if _, err := k.CoreV1().Events("default").List(limit(t), metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("list of Events: %v", err)
	}
}

// Behind knows when a client has applied everything that its watches select, and says what is missing.
func TestBehind(t *testing.T) {
	s, ctx := serve(t, apiserver.Config{}), limit(t)
	s.apply(t, `
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: mine}
spec: {nodeName: n1, containers: [{name: c, image: c}]}
---
apiVersion: v1
kind: Pod
metadata: {name: theirs}
spec: {nodeName: n2, containers: [{name: c, image: c}]}
`)
	k, _ := s.clients(t, "n1")
	w, err := k.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	expect(t, w, "ADDED mine")
	wanted := s.Wanted("n1")["Pod"]
	if wanted.Objects != 1 {
		t.Errorf("wanted: %v", wanted)
	}
	if got := s.Behind("n1", nil); len(got) != 1 || !strings.HasPrefix(got[0], "Pod: it has applied 0 objects") {
		t.Errorf("behind: %v", got)
	}
	applied := map[string]shell.Known{"Pod": wanted}
	if got := s.Behind("n1", applied); got != nil {
		t.Errorf("behind: %v", got)
	}
	s.apply(t, "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}]}}")
	if got := s.Behind("n1", applied); got != nil {
		t.Errorf("behind, by what it does not watch: %v", got)
	}
	s.Do(func(c *kube.Cluster) { err = errors.Join(err, c.SetPodReady("default", "theirs", true)) })
	if got := s.Behind("n1", applied); got != nil || err != nil {
		t.Errorf("behind, by what it does not select: %v, %v", got, err)
	}
	s.Do(func(c *kube.Cluster) { err = c.SetPodReady("default", "mine", true) })
	if got := s.Behind("n1", applied); len(got) != 1 || err != nil {
		t.Errorf("behind by one write: %v, %v", got, err)
	}
	if err := s.Watch("n1", "hold", nil, 0); err != nil {
		t.Fatal(err)
	}
	if got := s.Behind("n1", applied); got != nil {
		t.Errorf("behind by what is held: %v", got)
	}
	if d := s.Delivered("n1")[kube.KindPod]; d < wanted.Version {
		t.Errorf("delivered up to %d, want at least %d", d, wanted.Version)
	}
}
