package shell

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"towtank/agent"
)

// The prefixes of the names of metrics.
const (
	AgentMetrics      = "towtank_agent"
	ControllerMetrics = "towtank_controller"
)

// ServeMetrics serves /metrics in the format of Prometheus, /healthz and /readyz on a TCP address, HOST:PORT,
// until the returned function is called. The names of the metrics begin with prefix.
func ServeMetrics(address, prefix string, i *Inspector) (closeServer func() error, err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	i.Probes(mux)
	mux.Handle("GET /metrics", promhttp.HandlerFor(i.registry(prefix), promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // ends with Close
	return server.Close, nil
}

func (i *Inspector) registry(prefix string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collector{prefix, i})
	return r
}

// collector has the state machine count for each scrape: between two events, so that what it says fits together.
type collector struct {
	prefix string
	i      *Inspector
}

// Describe implements prometheus.Collector: which metrics there are follows from what happened.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := &sample{prefix: c.prefix}
	if err := c.i.ask(context.Background(), func() { c.i.sample(s) }); err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewDesc(c.prefix, "The state machine did not answer.", nil, nil), err)
		return
	}
	for _, m := range s.metrics {
		out <- m
	}
}

// sample is what one scrape gets. Labels are pairs of name and value.
type sample struct {
	prefix  string
	metrics []prometheus.Metric
}

func (s *sample) desc(name, help string, labels []string) (d *prometheus.Desc, values []string) {
	var names []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return prometheus.NewDesc(s.prefix+"_"+name, help, names, nil), values
}

func (s *sample) gauge(name, help string, v int, labels ...string) {
	d, values := s.desc(name, help, labels)
	s.metrics = append(s.metrics, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), values...))
}

func (s *sample) counter(name, help string, v uint64, labels ...string) {
	d, values := s.desc(name, help, labels)
	s.metrics = append(s.metrics, prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), values...))
}

func (s *sample) histogram(name, help string, h *agent.Histogram, labels ...string) {
	d, values := s.desc(name, help, labels)
	n, sum, buckets := h.Snapshot()
	s.metrics = append(s.metrics, prometheus.MustNewConstHistogram(d, n, sum, buckets, values...))
}

func yes(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sample takes all metrics. It runs on the queue's goroutine.
func (i *Inspector) sample(s *sample) {
	s.gauge("ready", "1 if every source was heard.", yes(i.Subject.Ready()))
	for kind, k := range i.Cluster.Known() {
		s.gauge("api_objects", "Objects of the Kubernetes API that are known.", k.Objects, "kind", kind)
	}
	s.gauge("api_requests_open", "Requests to the API without an answer yet.", i.Journal.openRequests)
	i.Journal.sample(s)
	switch t := i.Subject.(type) {
	case *agent.Loop:
		i.sampleLoop(s, t)
	case interface{ Leading() bool }:
		s.gauge("leading", "1 if this controller leads.", yes(t.Leading()))
	}
}

// sample takes what went through the seams.
func (j *Journal) sample(s *sample) {
	for k, n := range j.counts {
		s.counter("writes_total", "Writes by seam and class: bundles, transactions, restores, requests.", n, "seam", k.seam, "class", string(k.class))
	}
	for k, n := range j.ops {
		s.counter("ops_total", "Objects made, changed or deleted on the node, by outcome.", n, "class", string(k.class), "outcome", k.outcome.String())
	}
	for k, n := range j.requests {
		s.counter("api_requests_total", "Requests to the API by result.", n, "kind", k.kind, "verb", k.verb, "result", k.result)
	}
	for k, n := range j.calls {
		s.counter("cni_requests_total", "CNI calls that were answered, by error code; 0 is success.", n, "verb", string(k.verb), "code", strconv.Itoa(k.code))
	}
	for verb, h := range j.callTime {
		s.histogram("cni_request_duration_seconds", "From a CNI call to its answer.", h, "verb", string(verb))
	}
}

// sampleLoop takes what only an agent has.
func (i *Inspector) sampleLoop(s *sample, loop *agent.Loop) {
	st := loop.Status()
	s.gauge("switch_connected", "1 if the agent is connected to Open vSwitch.", yes(st.Connected))
	s.gauge("members", "Nodes that are alive, this one included.", len(st.Alive))
	s.gauge("cni_requests_open", "CNI calls without an answer yet.", i.Journal.openCalls)
	if i.Refused != nil {
		s.counter("packets_refused_total", "Packets that were answered for the pipeline, by RST or ICMP.", i.Refused())
	}
	byKind := func(name, help string, units []string) {
		for kind, n := range unitKinds(loop, units) {
			s.gauge(name, help, n, "kind", kind)
		}
	}
	byKind("units_dirty", "Units that are to be rendered.", st.Dirty)
	byKind("units_pending", "Units that are not on the node as they are wanted.", st.Pending)
	var waiting []string
	for _, q := range st.Quarantined {
		waiting = append(waiting, q.Unit)
	}
	byKind("units_quarantined", "Units that were refused and wait.", waiting)
	byKind("units", "Units that are wanted.", loop.Env().Store.Units())
	for kind, n := range loop.Env().Store.Count() {
		s.gauge("node_objects", "Objects that are wanted on the node.", n, "kind", string(kind))
	}
	sampleTables(s, loop)
	sampleStats(s, loop.Stats())
}

// unitKinds counts units by kind, every kind that there can be included.
func unitKinds(loop *agent.Loop, units []string) map[string]int {
	n := map[string]int{}
	for _, k := range loop.Kinds() {
		n[k] = 0
	}
	for _, u := range units {
		kind, _, _ := strings.Cut(u, "/")
		n[kind]++
	}
	return n
}

// sampleTables takes what people ask for by the names of Kubernetes.
func sampleTables(s *sample, loop *agent.Loop) {
	env := loop.Env()
	s.gauge("pods", "Sandboxes of Pods that are wired.", len(env.Sandboxes))
	s.gauge("services", "Services that are known.", len(env.Services))
	ports := map[string]int{"IPv4": 0, "IPv6": 0}
	for _, u := range env.Store.Units() {
		if strings.HasPrefix(u, "svcport/") {
			ports[familyOf(strings.HasSuffix(u, "/v6"))]++
		}
	}
	for family, n := range ports {
		s.gauge("service_ports", "Service ports that are served.", n, "family", family)
	}
	endpoints := map[string]int{"IPv4": 0, "IPv6": 0}
	for _, slices := range env.Slices {
		for _, sl := range slices {
			endpoints[familyOf(sl.AddressType == discoveryv1.AddressTypeIPv6)] += len(sl.Endpoints)
		}
	}
	for family, n := range endpoints {
		s.gauge("service_endpoints", "Endpoints of Services that are known.", n, "family", family)
	}
	s.gauge("egresses", "Egresses that are known.", len(env.Egresses))
	s.gauge("egress_ips", "Egress IPs that this node holds.", len(env.Marks.All()))
}

func familyOf(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

// sampleStats takes what the loop counted.
func sampleStats(s *sample, st agent.Stats) {
	s.counter("turns_total", "Turns of the loop.", st.Turns)
	s.counter("renders_total", "Units rendered.", st.Renders)
	s.counter("changes_total", "Changes sent off.", st.Changes)
	s.counter("reads_total", "Times that the node was read.", st.Audits)
	s.counter("repairs_total", "Objects that a reading of the node found otherwise than they were known.", st.Repairs)
	s.counter("orphans_deleted_total", "Objects deleted because nobody wants them.", st.Orphans)
	for kind, n := range st.Refusals {
		s.counter("unit_refusals_total", "Units refused.", n, "kind", kind)
	}
	s.histogram("change_duration_seconds", "From when a Change is sent off to its last answer.", &st.ChangeTime)
	for kind, h := range st.UnitTime {
		s.histogram("unit_duration_seconds", "From an event that touches a unit until everything that it wants is on the node.", h, "kind", kind)
	}
}

// Serve answers questions where the options say: on a unix socket and on a TCP address, each "" for not at all.
func (i *Inspector) Serve(socket, address, prefix string) (closeAll func() error, err error) {
	var closers []func() error
	closeAll = func() error {
		var errs []error
		for _, f := range closers {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	if socket != "" {
		f, err := ServeLocal(socket, i.Handler())
		if err != nil {
			return nil, err
		}
		closers = append(closers, f)
	}
	if address != "" {
		f, err := ServeMetrics(address, prefix, i)
		if err != nil {
			return nil, errors.Join(err, closeAll())
		}
		closers = append(closers, f)
	}
	return closeAll, nil
}
