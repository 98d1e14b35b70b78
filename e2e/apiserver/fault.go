package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"towtank/sim"
)

// errFault is what a fault of the mode refuse says.
var errFault = errors.New("refused by a fault of the scenario")

// faulted has a request performed as far as the faults of its client let it, and returns what to answer. A
// request that is cut ends here.
func (s *Server) faulted(r *request, perform func() error) error {
	s.mu.Lock()
	if r.client.cut {
		s.mu.Unlock()
		panic(http.ErrAbortHandler) // the connection ends without an answer
	}
	class := r.class()
	var mode sim.FaultMode
	if class != "" {
		mode = r.client.faults.Hit(class)
	}
	var err error
	switch mode {
	case "", sim.Late, sim.LostReply, sim.DieAfter:
		err = perform()
	}
	if class != "" {
		r.client.journal = append(r.client.journal, sim.Entry{
			At: s.cfg.Now(), Class: class, Units: []string{r.unit()}, Text: r.text(), Fault: mode,
		})
	}
	s.mu.Unlock()
	switch mode {
	case sim.Refuse:
		return apierrors.NewInternalError(errFault)
	case sim.Conflict:
		return apierrors.NewConflict(r.kind.Resource(), r.name, errors.New("the object has been modified (a fault of the scenario)"))
	case sim.Timeout, sim.LostReply:
		return s.unanswered(r)
	case sim.Die, sim.DieAfter:
		s.kill(r.client)
		panic(http.ErrAbortHandler)
	}
	return err
}

// kill ends the process of a client, if somebody said how.
func (s *Server) kill(c *client) {
	if s.cfg.Kill != nil {
		s.cfg.Kill(c.name)
	}
}

// unanswered keeps a request waiting, and then says that nothing is known of it.
func (s *Server) unanswered(r *request) error {
	count := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.client.unanswered += n
	}
	count(1)
	defer count(-1)
	t := time.NewTimer(s.cfg.Unanswered)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.http.Context().Done():
	case <-s.done:
	}
	return apierrors.NewTimeoutError("the request did not complete in time (a fault of the scenario)", 0)
}

// effects answers what an agent asks before it does something to its node (package faults), and tells it to die:
//
//	POST /towtank/effects/CLASS   {"mode": "refuse"}, "" if nothing happens to it
//	GET  /towtank/late            {"late": true} as long as ports are to be held back
//	POST /towtank/die             the process is ended
func (s *Server) effects(c *client, w http.ResponseWriter, hr *http.Request) bool {
	path, ok := strings.CutPrefix(hr.URL.Path, "/towtank/")
	if !ok {
		return false
	}
	class, isEffect := strings.CutPrefix(path, "effects/")
	s.mu.Lock()
	cut, late := c.cut, c.faults.Late()
	var mode sim.FaultMode
	if isEffect && !cut && hr.Method == http.MethodPost {
		mode = c.faults.Hit(class)
	}
	s.mu.Unlock()
	switch {
	case cut:
		panic(http.ErrAbortHandler)
	case path == "die" && hr.Method == http.MethodPost:
		s.kill(c)
		answer(w, http.StatusOK, []byte("{}"))
	case isEffect && hr.Method == http.MethodPost:
		if mode == sim.Die {
			s.kill(c)
		}
		answer(w, http.StatusOK, jsonOf(map[string]sim.FaultMode{"mode": mode}))
	case path == "late" && hr.Method == http.MethodGet:
		answer(w, http.StatusOK, jsonOf(map[string]bool{"late": late}))
	default:
		fail(w, noSuchPath(hr))
	}
	return true
}

// unit names what an effect is about: kind and name, as units of agents are named.
func (r *request) unit() string { return fmt.Sprintf("%s/%s/%s", r.kind, r.namespace, r.name) }

// AddFault sets a fault on a client. Those of the classes api-status and api-get hit its requests; those of the node
// hit what an agent does there, if it asks (package faults: towtank-agent --faults); any hits both, in the order in
// which they come.
func (s *Server) AddFault(client string, f sim.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.client(client)
	c.faults = append(c.faults, &f)
}

// ClearFaults ends the faults of a client; it returns those that hit less than they were to hit.
func (s *Server) ClearFaults(client string) (unused []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.client(client)
	unused = c.faults.Unused()
	c.faults = nil
	return unused
}

// Unspent reports whether a fault of the client may still hit, or keeps a request waiting.
func (s *Server) Unspent(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.client(client)
	return c.unanswered > 0 || c.faults.Unspent()
}

// UnusedFaults returns the faults of all clients that hit less than they were to hit.
func (s *Server) UnusedFaults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.clients)) {
		for _, f := range s.clients[name].faults.Unused() {
			out = append(out, name+" "+f)
		}
	}
	return out
}

// Mark begins a new count of writes for every client.
func (s *Server) Mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.marked = len(c.journal)
	}
}

// Journal returns what a client did to the API so far, as the simulator's journal has it: status writes, gets
// and Events. MarkedJournal is that since the last Mark.
func (s *Server) Journal(client string) []sim.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.client(client).journal)
}

// MarkedJournal is Journal since the last Mark.
func (s *Server) MarkedJournal(client string) []sim.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.client(client)
	return slices.Clone(c.journal[c.marked:])
}
