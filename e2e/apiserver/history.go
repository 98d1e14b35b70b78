package apiserver

import (
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/sim/kube"
)

// record is one write in a history.
type record struct {
	version uint64
	event   kube.Event
	old     runtime.Object // the state before, nil of a new object
	encoded func() ([]byte, error)
}

// history has the last writes of one kind in order, and its objects as they are.
type history struct {
	limit   int
	records []record
	// forgotten is the version of the newest write that is not among them: a watch can begin at or after it.
	forgotten uint64
	now       map[string]runtime.Object
	version   uint64 // of the last write
}

func newHistory(limit int, objects []runtime.Object) *history {
	h := &history{limit: limit, now: map[string]runtime.Object{}}
	for _, o := range objects {
		h.now[keyOf(o)] = o
		h.version = max(h.version, versionOf(o))
		h.forgotten = h.version
	}
	return h
}

// add appends a write.
func (h *history) add(e kube.Event) {
	r := record{version: versionOf(e.Object), event: e, old: h.now[keyOf(e.Object)]}
	o := e.Object
	r.encoded = sync.OnceValues(func() ([]byte, error) { return encode(o) }) // once for all watches
	h.records = append(h.records, r)
	if len(h.records) >= 2*h.limit {
		n := len(h.records) - h.limit
		h.forgotten = h.records[n-1].version
		h.records = append([]record(nil), h.records[n:]...)
	}
	h.version = r.version
	if e.Type == kube.Deleted {
		delete(h.now, keyOf(o))
	} else {
		h.now[keyOf(o)] = o
	}
}

// after returns the writes after a version; false if some of them are forgotten.
func (h *history) after(version uint64) ([]record, bool) {
	if version < h.forgotten {
		return nil, false
	}
	i := len(h.records)
	for i > 0 && h.records[i-1].version > version {
		i--
	}
	return h.records[i:], true
}

func versionOf(o runtime.Object) uint64 {
	m, err := meta.Accessor(o)
	if err != nil {
		return 0
	}
	v, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0 // the cluster gives numbers
	}
	return v
}

func keyOf(o runtime.Object) string {
	m, err := meta.Accessor(o)
	if err != nil {
		return ""
	}
	return m.GetNamespace() + "/" + m.GetName()
}
