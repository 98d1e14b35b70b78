package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"towtank/agent"
	"towtank/datapath"
)

// DefaultStatusSocket is where the agent answers questions about itself.
const DefaultStatusSocket = "/run/towtank/agent.sock"

// Report is what an agent says of itself: GET /status.
type Report struct {
	Node string `json:"node,omitempty"`
	agent.Status
	// Settled: idle, and no call or request is open. Together with Kinds it says that the agent has done
	// everything that it was told.
	Settled bool `json:"settled"`
	// Kinds is what the loop was told of each kind.
	Kinds map[string]Known `json:"kinds"`
	// Calls are CNI calls, Requests those to the API, that were not answered yet.
	Calls    int `json:"calls"`
	Requests int `json:"requests"`
	// Due is when the timers that settling waits for (retries, pacing) fire, the next first.
	Due []time.Time `json:"due,omitempty"`
	// Writes of this process by seam: switch, host, api. LastWrite is the number of the last one (GET
	// /writes?after=NUMBER).
	Writes    map[string]uint64 `json:"writes"`
	LastWrite uint64            `json:"lastWrite"`
	// Refused are the packets that were answered for the pipeline.
	Refused uint64 `json:"refused"`
}

// Unit is what a unit wants, with what is known of it: GET /store.
type Unit struct {
	Name    string       `json:"name"`
	About   []string     `json:"about,omitempty"`
	Objects []UnitObject `json:"objects"`
	// Waiting are the keys that an older unit has.
	Waiting []string `json:"waiting,omitempty"`
}

// UnitObject is one object that a unit wants.
type UnitObject struct {
	Kind datapath.Kind `json:"kind"`
	Text string        `json:"text"`
	// Known: it is on the node as it is wanted.
	Known bool `json:"known"`
}

// WriteList is what GET /writes answers.
type WriteList struct {
	// Complete is false if older writes are not there any more.
	Complete bool    `json:"complete"`
	Writes   []Write `json:"writes"`
}

// Subject is a state machine that questions are about: an agent's loop, or the pool allocation.
type Subject interface {
	Status() agent.Status
	// Ready is what the readiness probe answers.
	Ready() bool
}

// Inspector answers questions about an agent or the pool allocation. Each is answered by the state machine
// itself, between two events.
type Inspector struct {
	Node    string // of an agent
	Queue   *Queue
	Subject Subject
	Cluster *Cluster
	Clock   *Clock
	Journal *Journal
	// Refused returns how many packets were answered for the pipeline; nil: none.
	Refused func() uint64
}

// queryLimit bounds how long a question waits for the loop: one that takes longer is not alive.
const queryLimit = 5 * time.Second

// errBusy is the answer if the loop does not answer.
var errBusy = fmt.Errorf("the loop has not answered within %s", queryLimit)

// ask runs f on the loop's goroutine.
func (i *Inspector) ask(ctx context.Context, f func()) error {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	if !i.Queue.Do(ctx, f) {
		return errBusy
	}
	return nil
}

// Report answers what the agent is busy with.
func (i *Inspector) Report(ctx context.Context) (r Report, err error) {
	err = i.ask(ctx, func() {
		r = Report{
			Node: i.Node, Status: i.Subject.Status(), Kinds: i.Cluster.Known(), Calls: i.Journal.openCalls, Requests: i.Journal.openRequests,
			Due: i.Clock.Due(), Writes: i.Journal.Writes(), LastWrite: i.Journal.number,
		}
		if i.Refused != nil {
			r.Refused = i.Refused()
		}
		r.Settled = r.Idle && r.Calls == 0 && r.Requests == 0
	})
	return r, err
}

// Ready reports whether the agent has read its node and heard every source.
func (i *Inspector) Ready(ctx context.Context) (ready bool, err error) {
	err = i.ask(ctx, func() { ready = i.Subject.Ready() })
	return ready, err
}

// store answers what each unit of an agent wants.
func (i *Inspector) store(ctx context.Context, loop *agent.Loop) (out []Unit, err error) {
	err = i.ask(ctx, func() {
		st := loop.Env().Store
		for _, name := range st.Units() {
			u := Unit{Name: name, About: loop.About(name), Objects: []UnitObject{}}
			for _, o := range st.Objects(name) {
				known := st.Known(o.Key())
				u.Objects = append(u.Objects, UnitObject{Kind: o.Kind(), Text: o.String(), Known: known != nil && datapath.Equal(known, o)})
			}
			for _, k := range st.Waiting(name) {
				u.Waiting = append(u.Waiting, k.String())
			}
			out = append(out, u)
		}
	})
	return out, err
}

// Handler answers GET /status and /writes?after=NUMBER in JSON, /healthz and /readyz; of an agent also /store,
// and POST /audit, which has the node read and repaired now.
func (i *Inspector) Handler() http.Handler {
	mux := http.NewServeMux()
	i.Probes(mux)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		v, err := i.Report(r.Context())
		reply(w, v, err)
	})
	mux.HandleFunc("GET /writes", func(w http.ResponseWriter, r *http.Request) {
		after, err := strconv.ParseUint(r.FormValue("after"), 10, 64)
		if err != nil {
			http.Error(w, "after: want the number of a write, 0 for all: "+err.Error(), http.StatusBadRequest)
			return
		}
		var list WriteList
		err = i.ask(r.Context(), func() { list.Writes, list.Complete = i.Journal.After(after) })
		reply(w, list, err)
	})
	if loop, ok := i.Subject.(*agent.Loop); ok {
		i.ofLoop(mux, loop)
	}
	return mux
}

// ofLoop adds what only an agent answers.
func (i *Inspector) ofLoop(mux *http.ServeMux, loop *agent.Loop) {
	mux.HandleFunc("GET /store", func(w http.ResponseWriter, r *http.Request) {
		v, err := i.store(r.Context(), loop)
		reply(w, v, err)
	})
	mux.HandleFunc("POST /audit", func(w http.ResponseWriter, r *http.Request) {
		if err := i.ask(r.Context(), loop.Audit); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

// Probes adds /healthz (the loop answers) and /readyz (it has also heard every source) to a mux.
func (i *Inspector) Probes(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		_, err := i.Ready(r.Context())
		probe(w, err)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ready, err := i.Ready(r.Context())
		if err == nil && !ready {
			err = errors.New("not every source was heard yet")
		}
		probe(w, err)
	})
}

func probe(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // who asked is gone if this fails
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // who asked is gone if this fails
}

// ServeLocal answers on a unix socket until the returned function is called. A socket that is left from an
// earlier process is replaced. Only root may ask.
func ServeLocal(path string, h http.Handler) (closeServer func() error, err error) {
	l, err := listenUnix(path)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // ends with Close
	return server.Close, nil
}

// listenUnix listens on a unix socket that only its owner may use.
func listenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), l.Close())
	}
	return l, nil
}

// overUnix returns a client of a server on a unix socket.
func overUnix(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}

// Ask asks the agent behind a socket: path is /status, /store or /writes?after=NUMBER, into what it answers.
func Ask(ctx context.Context, socket, path string, into any) error {
	u, err := url.Parse("http://agent" + path)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	resp, err := overUnix(socket).Do(req)
	if err != nil {
		return fmt.Errorf("the agent at %s: %w", socket, err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing can be done about it
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // as far as it can be read
		return fmt.Errorf("the agent at %s: %s: %s", socket, resp.Status, text)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("the agent at %s: %s: %w", socket, path, err)
	}
	return nil
}

func word(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Print writes a report for people.
func (r Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "node\t%s\nready\t%s\nsettled\t%s\nconnected\t%s\n", r.Node, word(r.Ready), word(r.Settled), word(r.Connected))
	fmt.Fprintf(w, "wanted\t%d objects of %d units\n", r.Objects, r.Units)
	fmt.Fprintf(w, "in flight\tChange: %s, links: %d, API requests: %d, CNI calls: %d\n", word(r.InFlight.Change), r.InFlight.Links, r.Requests, r.Calls)
	fmt.Fprintf(w, "writes\tswitch: %d, host: %d, api: %d\n", r.Writes[SeamSwitch], r.Writes[SeamHost], r.Writes[SeamAPI])
	fmt.Fprintf(w, "members\t%v\n", r.Alive)
	for _, k := range slices.Sorted(maps.Keys(r.Kinds)) {
		fmt.Fprintf(w, "%s\t%s\n", k, r.Kinds[k])
	}
	for _, k := range r.Unheard {
		fmt.Fprintf(w, "not heard\tthe sources of %s\n", k)
	}
	for _, u := range r.Dirty {
		fmt.Fprintf(w, "dirty\t%s\n", u)
	}
	for _, u := range r.Pending {
		fmt.Fprintf(w, "pending\t%s\n", u)
	}
	for _, q := range r.Quarantined {
		fmt.Fprintf(w, "quarantined\t%s until %s: %s\n", q.Unit, q.Until.Format(time.TimeOnly), q.Error)
	}
	return w.Flush()
}
