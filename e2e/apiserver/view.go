package apiserver

import (
	"fmt"
	"maps"
	"slices"

	"towtank/sim/kube"
)

// view is what a client watches of a kind, and how far it was told.
type view struct {
	selection kube.Selection
	watched   bool
	delivered uint64 // everything up to this version was sent
}

// view returns the view of a client of a kind. It needs the lock.
func (c *client) view(k kube.Kind) *view {
	v := c.views[k]
	if v == nil {
		v = &view{}
		c.views[k] = v
	}
	return v
}

func (v *view) saw(sel kube.Selection, version uint64) {
	v.selection, v.delivered = sel, max(v.delivered, version)
}

func (v *view) watching(sel kube.Selection) { v.selection, v.watched = sel, true }

// State is how much of a kind somebody knows: how many objects, and the highest resource version of them.
// Two states of what is told in order are of the same objects if they are equal: a write raises the version,
// and what goes lowers the count.
type State struct {
	Objects int    `json:"objects"`
	Version uint64 `json:"resourceVersion,string"`
}

// String returns the state for people.
func (s State) String() string {
	return fmt.Sprintf("%d objects up to version %d", s.Objects, s.Version)
}

// Wanted returns, for each kind that a client watches, what it knows once it was told everything that its
// selectors take.
func (s *Server) Wanted(client string) map[kube.Kind]State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[kube.Kind]State{}
	for k, v := range s.client(client).views {
		if !v.watched {
			continue
		}
		var st State
		for _, o := range s.histories[k].now {
			if takes(v.selection, o) {
				st.Objects++
				st.Version = max(st.Version, versionOf(o))
			}
		}
		out[k] = st
	}
	return out
}

// Delivered returns, for each kind that a client watches, the resource version up to which its watch was
// sent everything.
func (s *Server) Delivered(client string) map[kube.Kind]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[kube.Kind]uint64{}
	for k, v := range s.client(client).views {
		out[k] = v.delivered
	}
	return out
}

// Behind returns what a client has not applied yet of what was written, one line for each kind, sorted: nil
// if it has applied everything. applied is what the client says of itself (an agent by its local API). Kinds
// whose watches are held or closed do not count, and none does while the client is cut off: what it cannot
// hear it need not know.
func (s *Server) Behind(client string, applied map[kube.Kind]State) []string {
	if !s.Reachable(client) {
		return nil
	}
	wanted := s.Wanted(client)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(wanted)) {
		if got := applied[k]; got != wanted[k] && !s.gated(client, k) {
			out = append(out, fmt.Sprintf("%s: it has applied %s, written are %s", k, got, wanted[k]))
		}
	}
	return out
}

func (s *Server) gated(client string, k kube.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.client(client).gate(k)
	return g.held || g.closed
}
