package apiserver

import (
	"fmt"
	"maps"
	"slices"

	"towtank/agent/shell"
	"towtank/sim/kube"
)

// view is what a client watches of a kind, and how far it was told.
type view struct {
	selection kube.Selection
	watched   bool
	delivered uint64 // everything up to this version was sent
	// wanted is what Wanted returns as long as nothing of the kind is written after version.
	wanted  shell.Known
	version uint64
	counted bool
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
	v.selection, v.delivered, v.counted = sel, max(v.delivered, version), false
}

func (v *view) watching(sel kube.Selection) {
	v.selection, v.watched, v.counted = sel, true, false
}

// want counts what the selection takes of a kind; callers ask often, and little is written between.
func (v *view) want(h *history) shell.Known {
	if v.counted && v.version == h.version {
		return v.wanted
	}
	v.wanted = shell.Known{}
	for _, o := range h.now {
		if takes(v.selection, o) {
			v.wanted.Objects++
			v.wanted.Version = max(v.wanted.Version, versionOf(o))
		}
	}
	v.version, v.counted = h.version, true
	return v.wanted
}

// Wanted returns, for each kind that a client watches, what it knows once it was told everything that its
// selectors take.
func (s *Server) Wanted(client string) map[string]shell.Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]shell.Known{}
	for k, v := range s.client(client).views {
		if v.watched {
			out[string(k)] = v.want(s.histories[k])
		}
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
// if it has applied everything. applied is what the
// client says of itself (an agent: shell.Report.Kinds). Kinds
// whose watches are held or closed do not count, and none does while the client is cut off: what it cannot
// hear it need not know.
func (s *Server) Behind(client string, applied map[string]shell.Known) []string {
	if !s.Reachable(client) {
		return nil
	}
	wanted := s.Wanted(client)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(wanted)) {
		if got := applied[k]; got != wanted[k] && !s.gated(client, kube.Kind(k)) {
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
