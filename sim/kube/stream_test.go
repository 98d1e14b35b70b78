package kube

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func (w *world) watch(client string, kinds ...Kind) *Stream {
	w.t.Helper()
	s, err := w.Watch(client, kinds)
	w.ok(err)
	return s
}

// drain delivers everything that may be and returns it.
func drain(s *Stream) string {
	var out []string
	for len(s.Pending()) > 0 {
		e, _ := s.Next(s.Pending()[0])
		text := strings.TrimSpace(fmt.Sprintf("%s %s", e.Type, e.Key))
		if e.Tombstone {
			text += " (tombstone)"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func svc(name string) string {
	return "---\napiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec: {ports: [{port: 80}]}\n"
}

func (w *world) label(name, value string) {
	w.t.Helper()
	w.ok(w.ChangeLabels(KindService, "default", name, map[string]string{"v": value}, nil))
}

// A watch lists, says that it is synced, and then delivers each change in order.
func TestWatch(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(svc("b") + svc("a"))
	s := w.watch("n1", KindService, KindEgress)
	w.equal("pending", fmt.Sprint(s.Pending()), "[Service Egress]")
	w.equal("not synced", s.Synced(KindService), false)
	w.equal("list", drain(s), "Added default/a, Added default/b, Synced, Synced")
	w.equal("synced", s.Synced(KindService), true)
	w.apply(svc("c"))
	w.label("c", "1")
	w.label("c", "2")
	w.ok(w.Delete(KindService, "default", "a"))
	w.equal("changes", drain(s), "Added default/c, Modified default/c, Modified default/c, Deleted default/a")
	if _, ok := s.Next(KindService); ok {
		t.Error("an event more")
	}
	s.Stop()
	w.label("c", "3")
	w.equal("stopped", drain(s), "")
	if _, err := w.Watch("n1", []Kind{"ConfigMap"}); err == nil {
		t.Error("a watch of what has no effect")
	}
}

// Held events come late and in order, as many as are released.
func TestHold(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(svc("a"))
	s := w.watch("n1", KindService, KindPod)
	drain(s)
	s.Hold(KindService)
	w.label("a", "1")
	w.label("a", "2")
	w.apply(svc("b"))
	w.run("p", "n1", "10.10.1.2", nil)
	w.equal("only the other kind", drain(s), "Added default/p, Modified default/p, Modified default/p")
	w.equal("queued", s.Queued(KindService), 3)
	s.Release(2, KindService)
	w.equal("two", drain(s), "Modified default/a, Modified default/a")
	w.equal("still held", w.Faulted("n1"), true)
	w.ok(w.Delete(KindService, "default", "b"))
	w.equal("none", drain(s), "")
	s.Release(0)
	w.equal("the rest", drain(s), "Added default/b, Deleted default/b")
	w.equal("not held", w.Faulted("n1"), false)
	s.Release(1, KindService) // of what is not held: nothing
	w.label("a", "3")
	w.label("a", "4")
	w.equal("both", drain(s), "Modified default/a, Modified default/a")
	s.Suspend()
	w.label("a", "5")
	w.equal("suspended", drain(s), "")
	s.Resume(false)
	w.equal("resumed", drain(s), "Modified default/a")
}

// What happens while a watch is closed is learned by a relist: one event for each object that changed,
// tombstones for those that went, with the last state that the client had seen.
func TestCloseAndRelist(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(svc("a") + svc("b") + svc("c") + svc("d"))
	s := w.watch("n1", KindService)
	drain(s)
	w.label("d", "seen")
	drain(s)
	w.label("d", "queued") // not delivered when the watch breaks
	s.Close()
	w.label("a", "1")
	w.label("a", "2")
	w.ok(w.Delete(KindService, "default", "b"))
	w.apply(svc("e"))
	w.apply(svc("f"))
	w.ok(w.Delete(KindService, "default", "f"))
	w.ok(w.Delete(KindService, "default", "c"))
	w.apply(svc("c")) // another object of the name
	w.ok(w.Delete(KindService, "default", "d"))
	w.equal("closed", drain(s), "")
	s.Release(0)
	e, _ := s.Next(KindService)
	w.equal("tombstone", fmt.Sprint(e.Type, e.Key, e.Tombstone), "Deleteddefault/btrue")
	w.equal("the rest", drain(s), "Deleted default/c (tombstone), Deleted default/d (tombstone), Modified default/a, Added default/c, Added default/e")
	w.label("e", "1")
	w.equal("live again", drain(s), "Modified default/e")

	s.Close()
	w.label("a", "3")
	w.label("e", "3")
	s.Release(1)
	w.equal("one of the relist", drain(s), "Modified default/a")
	s.Release(0)
	w.equal("the other", drain(s), "Modified default/e")
	s.Close()
	s.Release(0)
	w.equal("nothing changed", drain(s), "")

	// Holding and closing belong to the client: a restarted agent finds its watches so.
	s.Close()
	s.Stop()
	s = w.watch("n1", KindService)
	w.equal("closed before the list", drain(s), "")
	w.watch("n2", KindService)
	s.Release(0)
	w.equal("the list", drain(s), "Added default/a, Added default/c, Added default/e, Synced")
}

// The last state in a tombstone is the one that the client had seen, not the last there was.
func TestTombstoneState(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(svc("a"))
	s := w.watch("n1", KindService)
	drain(s)
	s.Close(KindService)
	w.label("a", "unseen")
	w.ok(w.Delete(KindService, "default", "a"))
	s.Release(0, KindService)
	e, _ := s.Next(KindService)
	w.equal("label", e.Object.(*corev1.Service).Labels["v"], "")
}

// The world is woken when something was queued; an observer sees every write in order.
func TestWakeAndObserve(t *testing.T) {
	w := newWorld(t, "v4")
	woken := 0
	w.cfg.Wake = func() { woken++ }
	var seen []string
	w.AddObserver(func(e Event) { seen = append(seen, fmt.Sprint(e.Type, e.Kind, e.Key)) })
	w.apply(svc("a"))
	w.equal("nobody watches", woken, 0)
	s := w.watch("n1", KindService)
	w.equal("list", woken, 1)
	drain(s)
	w.ok(w.ChangeLabels(KindNode, "", "n1", map[string]string{"a": "b"}, nil))
	w.equal("not watched", woken, 1)
	w.label("a", "1")
	w.equal("change", woken, 2)
	w.label("a", "1")
	w.equal("no change", woken, 2)
	w.equal("writes", strings.Join(seen, " "), "AddedServicedefault/a ModifiedNoden1 ModifiedServicedefault/a")
}
