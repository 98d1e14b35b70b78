// Package faults has the effects of a real agent on its node fail as a scenario says: a bundle is refused, an
// answer gets lost, the agent dies between two stages. It sits between the agent's loop and its node, and asks the
// API server of the scenario (e2e/apiserver) before each effect what happens to it. So faults are counted in one
// place, with those of the API, and outlive the agent that they kill.
//
//	agent.Loop ──▶ journal ──▶ Wrap ──▶ Open vSwitch, kernel, addresses
//	                            │ POST /towtank/effects/CLASS: refuse, timeout, lost-reply, late, die, die-after, or nothing
//	                            ▼
//	                     e2e/apiserver
package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"towtank/agent"
	"towtank/agent/edge"
	"towtank/agent/shell"
	"towtank/datapath"
)

var (
	errFault   = errors.New("refused by a fault of the scenario")
	errTimeout = errors.New("no answer")
)

// unanswered is when a lost answer is given up, as in the simulator; lateEvery is how often it is asked whether
// late ports may come now.
const (
	unanswered = 2 * time.Second
	lateEvery  = 100 * time.Millisecond
)

// Injector asks the server, and does to effects what it says.
type Injector struct {
	url    string
	client *http.Client
	log    klog.Logger
	q      *shell.Queue // the loop's
	asks   *shell.Queue // keeps the order of effects
	handle func(any)
	// late are the ports that are held back, with what was heard of them.
	late map[string][]datapath.PortEvent
}

// New returns an injector that asks the server which config leads to, as the client that it names.
func New(config *rest.Config, log klog.Logger) (*Injector, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	client.Timeout = unanswered
	return &Injector{url: config.Host + "/towtank/", client: client, log: log, asks: shell.NewQueue(), late: map[string][]datapath.PortEvent{}}, nil
}

// Wrap implements daemon.Options.Wrap.
func (i *Injector) Wrap(ctx context.Context, q *shell.Queue, s agent.Seams, handle func(any)) (agent.Seams, func(any)) {
	i.q, i.handle = q, handle
	go i.asks.Run(ctx)
	s.Switch, s.Host, s.IPAM = faultySwitch{s.Switch, i}, faultyHost{s.Host, i}, faultyIPAM{s.IPAM, i}
	return s, i.hear
}

// ask asks the server; into is what it answers. Whoever cannot ask has no faults.
func (i *Injector) ask(method, path string, into any) {
	req, err := http.NewRequest(method, i.url+path, nil)
	if err != nil {
		i.log.Error(err, "A fault was not asked for", "path", path)
		return
	}
	resp, err := i.client.Do(req)
	if err != nil {
		i.log.V(2).Info("A fault was not asked for", "path", path, "err", err)
		return
	}
	defer resp.Body.Close() //nolint:errcheck // nothing can be done about it
	if resp.StatusCode != http.StatusOK {
		i.log.Error(nil, "A fault was not asked for", "path", path, "status", resp.Status)
		return
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		i.log.Error(err, "The answer about a fault is not understood", "path", path)
	}
}

// effect has an effect happen, as far as the faults let it. perform does it, and calls then with what hands the
// answer to the loop; refuse makes the answer of one that was not done, or of which nothing is known.
func (i *Injector) effect(class datapath.Class, perform func(then func(answer func()), late bool), refuse func(err error, unknown bool)) {
	lost := func() {
		time.AfterFunc(unanswered, func() { i.q.Post(func() { refuse(errTimeout, true) }) })
	}
	i.asks.Post(func() {
		var answer struct{ Mode string }
		i.ask(http.MethodPost, "effects/"+string(class), &answer)
		i.q.Post(func() {
			switch answer.Mode {
			case "", "late":
				perform(func(answer func()) { answer() }, answer.Mode == "late")
			case "timeout":
				lost()
			case "lost-reply":
				perform(func(func()) { lost() }, false)
			case "die": // the server ends this process
			case "die-after":
				perform(func(func()) { go i.ask(http.MethodPost, "die", &struct{}{}) }, false)
			default:
				refuse(errFault, false)
			}
		})
	})
}

// hear hands an event to the loop, unless it is of a port that is held back.
func (i *Injector) hear(ev any) {
	if p, ok := ev.(datapath.PortEvent); ok {
		if _, held := i.late[p.Name]; held {
			i.late[p.Name] = append(i.late[p.Name], p)
			return
		}
	}
	i.handle(ev)
}

// hold holds ports back until the server says that they may come.
func (i *Injector) hold(ops []datapath.Op) {
	first := len(i.late) == 0
	for _, op := range ops {
		if k := op.Key(); k.Kind == datapath.KindPort && !op.Delete() && i.late[k.Name] == nil {
			i.late[k.Name] = []datapath.PortEvent{}
		}
	}
	if first && len(i.late) > 0 {
		i.await()
	}
}

func (i *Injector) await() {
	time.AfterFunc(lateEvery, func() {
		answer := struct{ Late bool }{Late: true}
		i.ask(http.MethodGet, "late", &answer)
		i.q.Post(func() {
			if answer.Late {
				i.await()
				return
			}
			held := i.late
			i.late = map[string][]datapath.PortEvent{}
			for _, events := range held {
				for _, e := range events {
					i.handle(e)
				}
			}
		})
	})
}

func outcome(unknown bool) datapath.Outcome {
	if unknown {
		return datapath.Unknown
	}
	return datapath.Refused
}

// plain is an effect whose answer is an error or nothing.
func (i *Injector) plain(class datapath.Class, call func(done func(error)), done func(error)) {
	i.effect(class, func(then func(func()), _ bool) {
		call(func(err error) { then(func() { done(err) }) })
	}, func(err error, _ bool) { done(err) })
}

// conntrack is a dump of conntrack.
func (i *Injector) conntrack(dump func(done func([]datapath.ConntrackEntry, error)), done func([]datapath.ConntrackEntry, error)) {
	i.effect(datapath.ClassDumpConntrack, func(then func(func()), _ bool) {
		dump(func(e []datapath.ConntrackEntry, err error) { then(func() { done(e, err) }) })
	}, func(err error, _ bool) { done(nil, err) })
}

type faultySwitch struct {
	datapath.Switch
	i *Injector
}

// Apply implements datapath.Switch.
func (s faultySwitch) Apply(stage datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	s.i.effect(datapath.ClassOf(ops[0].Kind()), func(then func(func()), late bool) {
		if late {
			s.i.hold(ops)
		}
		s.Switch.Apply(stage, ops, func(r []datapath.OpResult) { then(func() { done(r) }) })
	}, func(err error, unknown bool) { done(datapath.AllResults(len(ops), outcome(unknown), err)) })
}

// FlushConntrack implements datapath.Switch.
func (s faultySwitch) FlushConntrack(tuples []datapath.Tuple, done func(error)) {
	s.i.plain(datapath.ClassFlush, func(done func(error)) { s.Switch.FlushConntrack(tuples, done) }, done)
}

// DumpConntrack implements datapath.Switch.
func (s faultySwitch) DumpConntrack(zones []uint16, done func([]datapath.ConntrackEntry, error)) {
	s.i.conntrack(func(done func([]datapath.ConntrackEntry, error)) { s.Switch.DumpConntrack(zones, done) }, done)
}

// ResolveTunnel implements datapath.Switch.
func (s faultySwitch) ResolveTunnel(peers []netip.Addr, done func(error)) {
	s.i.plain(datapath.ClassResolve, func(done func(error)) { s.Switch.ResolveTunnel(peers, done) }, done)
}

type faultyHost struct {
	datapath.Host
	i *Injector
}

// Apply implements datapath.Host. As in the simulator each class of a stage is an effect of its own, and what comes
// after one without an answer is not tried.
func (h faultyHost) Apply(stage datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	h.rest(stage, ops, nil, done)
}

func (h faultyHost) rest(stage datapath.Stage, ops []datapath.Op, results []datapath.OpResult, done func([]datapath.OpResult)) {
	part, rest := datapath.Part(ops)
	if len(part) == 0 {
		done(results)
		return
	}
	next := func(r []datapath.OpResult) {
		results = append(results, r...)
		for _, x := range r {
			if x.Outcome == datapath.Unknown {
				done(append(results, datapath.AllResults(len(rest), datapath.Skipped, nil)...))
				return
			}
		}
		h.rest(stage, rest, results, done)
	}
	h.i.effect(datapath.ClassOf(part[0].Kind()), func(then func(func()), _ bool) {
		h.Host.Apply(stage, part, func(r []datapath.OpResult) { then(func() { next(r) }) })
	}, func(err error, unknown bool) { next(datapath.AllResults(len(part), outcome(unknown), err)) })
}

// Announce implements datapath.Host.
func (h faultyHost) Announce(a []datapath.Announcement, done func(error)) {
	h.i.plain(datapath.ClassAnnounce, func(done func(error)) { h.Host.Announce(a, done) }, done)
}

// FlushConntrack implements datapath.Host.
func (h faultyHost) FlushConntrack(tuples []datapath.Tuple, done func(error)) {
	h.i.plain(datapath.ClassFlush, func(done func(error)) { h.Host.FlushConntrack(tuples, done) }, done)
}

// DumpConntrack implements datapath.Host.
func (h faultyHost) DumpConntrack(done func([]datapath.ConntrackEntry, error)) {
	h.i.conntrack(h.Host.DumpConntrack, done)
}

type faultyIPAM struct {
	edge.IPAM
	i *Injector
}

// Add implements edge.IPAM.
func (m faultyIPAM) Add(a edge.Attachment, done func([]netip.Prefix, error)) {
	m.i.effect(shell.ClassIPAM, func(then func(func()), _ bool) {
		m.IPAM.Add(a, func(ips []netip.Prefix, err error) { then(func() { done(ips, err) }) })
	}, func(err error, _ bool) { done(nil, err) })
}

// Del implements edge.IPAM.
func (m faultyIPAM) Del(a edge.Attachment, done func(error)) {
	m.i.plain(shell.ClassIPAM, func(done func(error)) { m.IPAM.Del(a, done) }, done)
}
