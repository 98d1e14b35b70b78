package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"towtank/sim/kube"
)

// defaultWatch is how long a watch lasts that does not say, as at kube-apiserver (--min-request-timeout).
const defaultWatch = 30 * time.Minute

// query is what a list or watch asks for.
type query struct {
	selection kube.Selection
	version   uint64 // 0: any
	exact     bool
	initial   bool // sendInitialEvents
	bookmarks bool
	timeout   time.Duration
}

func (r *request) query() (query, error) {
	v := r.http.URL.Query()
	q := query{selection: kube.Selection{Namespace: r.namespace}, timeout: defaultWatch}
	var errs []error
	var err error
	q.selection.Labels, err = labels.Parse(v.Get("labelSelector"))
	errs = append(errs, err)
	q.selection.Fields, err = fields.ParseSelector(v.Get("fieldSelector"))
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, q.selection.Check(r.kind))
	}
	if s := v.Get("resourceVersion"); s != "" {
		q.version, err = strconv.ParseUint(s, 10, 64)
		errs = append(errs, err)
	}
	if s := v.Get("timeoutSeconds"); s != "" {
		n, err := strconv.ParseUint(s, 10, 31)
		errs = append(errs, err)
		if n > 0 {
			q.timeout = time.Duration(n) * time.Second
		}
	}
	q.exact = v.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact)
	q.bookmarks = v.Get("allowWatchBookmarks") == "true" || v.Get("allowWatchBookmarks") == "1"
	errs = append(errs, q.setInitial(v))
	if err := errors.Join(errs...); err != nil {
		return q, apierrors.NewBadRequest(fmt.Sprintf("%s: %v", r.resource, err))
	}
	return q, nil
}

// setInitial reads sendInitialEvents, which has conditions (KEP-3157).
func (q *query) setInitial(v url.Values) error {
	q.initial = v.Get("sendInitialEvents") == "true"
	if q.initial && (v.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan) || !q.bookmarks) {
		return errors.New("sendInitialEvents: allowed only with resourceVersionMatch=NotOlderThan and allowWatchBookmarks=true")
	}
	return nil
}

// list answers with all objects that a query selects. A list waits while the watches of its kind are held or
// closed: it would tell what they must not.
func (s *Server) list(r *request) {
	q, err := r.query()
	if err != nil {
		fail(r.w, err)
		return
	}
	if r.kind == "" {
		fail(r.w, r.notAllowed("list"))
		return
	}
	var items []runtime.Object
	var version uint64
	ok := s.await(r, func() bool {
		h := s.histories[r.kind]
		// As in the simulator each object is one, and the end another one.
		n, g := len(h.now)+1, r.client.gate(r.kind)
		if r.client.cut || g.open(n) < n {
			return false
		}
		g.passed(n)
		items, version = h.selected(q.selection), s.cluster.Version()
		if err = q.listable(version); err == nil {
			r.client.view(r.kind).saw(q.selection, version)
		}
		return true
	})
	switch {
	case !ok:
		return
	case err != nil:
		fail(r.w, err)
		return
	}
	out := struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}{
		TypeMeta: metav1.TypeMeta{Kind: string(r.kind) + "List", APIVersion: r.version.String()},
		Metadata: metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10)}, Items: []json.RawMessage{},
	}
	for _, o := range items {
		data, err := encode(o)
		if err != nil {
			fail(r.w, err)
			return
		}
		out.Items = append(out.Items, data)
	}
	answer(r.w, http.StatusOK, jsonOf(out))
}

// listable returns an error if a list cannot be of the version that it is to have.
func (q query) listable(version uint64) error {
	switch {
	case q.version > version:
		return apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", q.version, version), 1)
	case q.exact && q.version != version:
		return apierrors.NewResourceExpired(fmt.Sprintf("the list of version %d is not kept, only the one of %d is", q.version, version))
	}
	return nil
}

// selected returns the objects that a selection takes, sorted by namespace and name.
func (h *history) selected(sel kube.Selection) []runtime.Object {
	var out []runtime.Object
	for _, k := range slices.Sorted(maps.Keys(h.now)) {
		if takes(sel, h.now[k]) {
			out = append(out, h.now[k])
		}
	}
	return out
}

func takes(sel kube.Selection, o runtime.Object) bool {
	m, err := meta.Accessor(o)
	return err == nil && sel.Takes(m)
}

// await waits until ready returns true, which it calls with the lock; false if the client is gone first.
func (s *Server) await(r *request, ready func() bool) bool {
	for {
		s.mu.Lock()
		ok, changed := ready(), s.changed
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-r.http.Context().Done():
			return false
		case <-s.done:
			return false
		}
	}
}

// watcher is one watch: a place in the history of its kind.
type watcher struct {
	r        *request
	q        query
	at       uint64 // everything up to this version was delivered
	closings int    // of the gate when it began
	// initial are the objects that are still to be sent as they were at the start; begun is set once they were
	// looked up.
	initial []runtime.Object
	begun   bool
	marked  bool // the end of the initial objects was told, if it was to be told
}

// watchEvent is one line of a watch.
type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch answers with what changes, one line of JSON each, until its time is over.
func (s *Server) watch(r *request) {
	q, err := r.query()
	if err == nil && r.kind == "" {
		err = r.notAllowed("watch")
	}
	if err == nil && q.initial && s.cfg.NoStreamedLists {
		err = apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", field.ErrorList{
			field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
		})
	}
	if err != nil {
		fail(r.w, err)
		return
	}
	wt := &watcher{r: r, q: q, at: q.version}
	if !s.begin(wt) {
		return
	}
	r.w.Header().Set("Content-Type", "application/json")
	out := http.NewResponseController(r.w)
	if out.Flush() != nil {
		return
	}
	end, bookmark := time.NewTimer(q.timeout), time.NewTicker(s.cfg.Bookmark)
	defer end.Stop()
	defer bookmark.Stop()
	for {
		lines, changed, over := s.take(wt)
		for _, l := range lines {
			if _, err := r.w.Write(append(jsonOf(l), '\n')); err != nil {
				return
			}
		}
		if len(lines) > 0 && out.Flush() != nil || over {
			return
		}
		if len(lines) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-bookmark.C:
			if l, ok := s.bookmark(wt); ok {
				if _, err := r.w.Write(append(jsonOf(l), '\n')); err != nil || out.Flush() != nil {
					return
				}
			}
		case <-end.C:
			return
		case <-r.http.Context().Done():
			return
		case <-s.done:
			return
		}
	}
}

// begin waits until the watch may begin, and answers with an error if it cannot.
func (s *Server) begin(wt *watcher) bool {
	r := wt.r
	var err error
	ok := s.await(r, func() bool {
		g := r.client.gate(r.kind)
		if r.client.cut || g.closed {
			return false
		}
		wt.closings = g.closings
		h := s.histories[r.kind]
		switch {
		case wt.q.initial || wt.q.version == 0:
			if wt.q.version > s.cluster.Version() {
				err = wt.q.listable(s.cluster.Version())
			}
		case wt.q.version > s.cluster.Version():
			err = wt.q.listable(s.cluster.Version())
		case wt.q.version < h.forgotten || wt.q.version < g.expired:
			err = expired(wt.q.version)
		}
		if err == nil {
			r.client.view(r.kind).watching(wt.q.selection)
		}
		return true
	})
	if ok && err != nil {
		fail(r.w, err)
	}
	return ok && err == nil
}

func expired(version uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", version))
}

// maxLines bounds how much is taken from a history at once.
const maxLines = 500

// take returns the next lines of a watch, the channel that is closed when there may be more, and whether the
// watch is over.
func (s *Server) take(wt *watcher) (lines []watchEvent, changed <-chan struct{}, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := wt.r
	g := r.client.gate(r.kind)
	if g.closings != wt.closings {
		return nil, nil, true
	}
	if r.client.cut {
		return nil, s.changed, false
	}
	if lines = s.takeInitial(wt, g); len(lines) > 0 || !wt.marked {
		return lines, s.changed, false
	}
	records, ok := s.histories[r.kind].after(wt.at)
	if !ok {
		st := statusOf(expired(wt.at))
		st.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		return []watchEvent{{"ERROR", jsonOf(st)}}, nil, true
	}
	n := g.open(min(len(records), maxLines))
	g.passed(n)
	for _, rec := range records[:n] {
		wt.at = rec.version
		if l, ok := rec.line(wt.q.selection); ok {
			lines = append(lines, l)
		}
	}
	v := r.client.view(r.kind)
	v.delivered = max(v.delivered, wt.at)
	if n > 0 && len(lines) == 0 {
		return nil, closedChannel, false // nothing that it selects, but there may be more
	}
	return lines, s.changed, false
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// takeInitial returns the next of the objects that there were at the start, for a watch that begins with them.
func (s *Server) takeInitial(wt *watcher, g *gate) []watchEvent {
	if wt.marked {
		return nil
	}
	if wt.q.version != 0 && !wt.q.initial {
		wt.marked = true
		return nil
	}
	h := s.histories[wt.r.kind]
	if !wt.begun {
		for _, k := range slices.Sorted(maps.Keys(h.now)) {
			wt.initial = append(wt.initial, h.now[k])
		}
		wt.begun, wt.at = true, s.cluster.Version()
	}
	n := g.open(min(len(wt.initial), maxLines))
	var lines []watchEvent
	for _, o := range wt.initial[:n] {
		if takes(wt.q.selection, o) {
			lines = append(lines, line("ADDED", o))
		}
	}
	g.passed(n)
	wt.initial = wt.initial[n:]
	if len(wt.initial) > 0 || g.open(1) == 0 {
		return lines
	}
	g.passed(1)
	wt.marked = true
	v := wt.r.client.view(wt.r.kind)
	v.delivered = max(v.delivered, wt.at)
	if wt.q.initial {
		lines = append(lines, bookmarkLine(wt, true))
	}
	return lines
}

// line is a write as a watch with a selection sees it: what is no longer selected is gone.
func (r record) line(sel kube.Selection) (watchEvent, bool) {
	was := r.old != nil && takes(sel, r.old)
	is := r.event.Type != kube.Deleted && takes(sel, r.event.Object)
	typ := "MODIFIED"
	switch {
	case !was && !is:
		return watchEvent{}, false
	case !is:
		typ = "DELETED"
	case !was:
		typ = "ADDED"
	}
	data, err := r.encoded()
	if err != nil {
		return watchEvent{"ERROR", jsonOf(statusOf(err))}, true
	}
	return watchEvent{typ, data}, true
}

func line(typ string, o runtime.Object) watchEvent {
	data, err := encode(o)
	if err != nil {
		return watchEvent{"ERROR", jsonOf(statusOf(err))}
	}
	return watchEvent{typ, data}
}

// bookmark returns a bookmark for a watch that asked for them and has everything up to now.
func (s *Server) bookmark(wt *watcher) (watchEvent, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records, ok := s.histories[wt.r.kind].after(wt.at)
	g := wt.r.client.gate(wt.r.kind)
	if !wt.q.bookmarks || !wt.marked || wt.r.client.cut || g.held || g.closed || !ok || len(records) > 0 {
		return watchEvent{}, false
	}
	wt.at = s.cluster.Version()
	return bookmarkLine(wt, false), true
}

// bookmarkLine is a bookmark of the place of a watch: an object of its kind with nothing but a version.
func bookmarkLine(wt *watcher, endOfInitial bool) watchEvent {
	o := metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: string(wt.r.kind), APIVersion: wt.r.version.String()},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(wt.at, 10)},
	}
	if endOfInitial {
		o.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return watchEvent{"BOOKMARK", jsonOf(o)}
}
