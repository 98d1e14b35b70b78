package shell

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent"
	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/edge"
	"towtank/datapath"
)

// The seams that writes are counted for.
const (
	SeamSwitch = "switch"
	SeamHost   = "host"
	SeamAPI    = "api"
)

// The classes of writes that no object of a node is behind.
const (
	ClassIPAM      datapath.Class = "ipam"
	ClassAPIStatus datapath.Class = "api-status" // statuses, addresses of Egresses, groups
	ClassAPIGet    datapath.Class = "api-get"
	ClassRecord    datapath.Class = "record" // Events
)

// Write is one write of the agent: a bundle, a transaction, a restore, a request.
type Write struct {
	// Number counts all writes of the process from 1.
	Number uint64         `json:"number"`
	At     time.Time      `json:"at"`
	Seam   string         `json:"seam"`
	Class  datapath.Class `json:"class"`
	// Units are those it is for, About the Kubernetes objects that those are about: pod/NAMESPACE/NAME.
	Units []string `json:"units,omitempty"`
	About []string `json:"about,omitempty"`
}

// maxWrites is how many of the last writes the journal has.
const maxWrites = 10_000

// Journal sits in the agent's seams: it counts what goes through them, and has the last writes. All of it is
// the loop's: it is called on the queue's goroutine only.
type Journal struct {
	about  func(unit string) []string
	writes []Write
	number uint64
	counts map[writeKey]uint64
	ops    map[opKey]uint64
	calls  map[callKey]uint64
	// callTime is by verb.
	callTime map[edge.CNIVerb]*agent.Histogram
	// openCalls and openRequests were not answered yet.
	openCalls, openRequests int
	requests                map[requestKey]uint64
}

type writeKey struct {
	seam  string
	class datapath.Class
}

type opKey struct {
	class   datapath.Class
	outcome datapath.Outcome
}

type callKey struct {
	verb edge.CNIVerb
	code int
}

type requestKey struct {
	kind, verb, result string
}

// NewJournal returns an empty journal; about says what a unit is about, as agent.Loop.About does.
func NewJournal(about func(unit string) []string) *Journal {
	return &Journal{
		about: about, counts: map[writeKey]uint64{}, ops: map[opKey]uint64{}, calls: map[callKey]uint64{},
		callTime: map[edge.CNIVerb]*agent.Histogram{}, requests: map[requestKey]uint64{},
	}
}

// After returns the writes after a number, the oldest first; complete is false if older ones of them are not
// there any more.
func (j *Journal) After(number uint64) (writes []Write, complete bool) {
	first := j.number - uint64(len(j.writes)) // before the oldest
	if number < first {
		return slices.Clone(j.writes), false
	}
	if number >= j.number {
		return nil, true
	}
	return slices.Clone(j.writes[number-first:]), true
}

// Writes returns how many writes there were by seam.
func (j *Journal) Writes() map[string]uint64 {
	out := map[string]uint64{SeamSwitch: 0, SeamHost: 0, SeamAPI: 0}
	for k, n := range j.counts {
		out[k.seam] += n
	}
	return out
}

// write counts a write.
func (j *Journal) write(seam string, class datapath.Class, units []string) {
	j.number++
	j.counts[writeKey{seam, class}]++
	w := Write{Number: j.number, At: time.Now(), Seam: seam, Class: class, Units: units}
	for _, u := range units {
		w.About = append(w.About, j.about(u)...)
	}
	slices.Sort(w.About)
	w.About = slices.Compact(w.About)
	if len(j.writes) >= 2*maxWrites {
		j.writes = slices.Clone(j.writes[len(j.writes)-maxWrites:])
	}
	j.writes = append(j.writes, w)
}

// apply counts the writes that ops are, and returns a done that counts their results.
func (j *Journal) apply(seam string, ops []datapath.Op, done func([]datapath.OpResult)) func([]datapath.OpResult) {
	for rest := ops; len(rest) > 0; {
		var part []datapath.Op
		part, rest = datapath.Part(rest)
		j.write(seam, datapath.ClassOf(part[0].Kind()), unitsOf(part))
	}
	return func(r []datapath.OpResult) {
		for i := range r {
			if i < len(ops) {
				j.ops[opKey{datapath.ClassOf(ops[i].Kind()), r[i].Outcome}]++
			}
		}
		done(r)
	}
}

// unitsOf returns the units of ops, each once, sorted.
func unitsOf(ops []datapath.Op) []string {
	var out []string
	for i := range ops {
		out = append(out, ops[i].Units...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Switch returns a switch whose writes are counted.
func (j *Journal) Switch(s datapath.Switch) datapath.Switch { return journalSwitch{s, j} }

type journalSwitch struct {
	datapath.Switch
	j *Journal
}

// Apply implements datapath.Switch.
func (s journalSwitch) Apply(stage datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	s.Switch.Apply(stage, ops, s.j.apply(SeamSwitch, ops, done))
}

// FlushConntrack implements datapath.Switch.
func (s journalSwitch) FlushConntrack(tuples []datapath.Tuple, done func(error)) {
	s.j.write(SeamSwitch, datapath.ClassFlush, nil)
	s.Switch.FlushConntrack(tuples, done)
}

// ResolveTunnel implements datapath.Switch. It writes nothing that stays.
func (s journalSwitch) ResolveTunnel(peers []netip.Addr, done func(error)) {
	s.j.counts[writeKey{"", datapath.ClassResolve}]++
	s.Switch.ResolveTunnel(peers, done)
}

// Host returns a host whose writes are counted.
func (j *Journal) Host(h datapath.Host) datapath.Host { return journalHost{h, j} }

type journalHost struct {
	datapath.Host
	j *Journal
}

// Apply implements datapath.Host.
func (h journalHost) Apply(stage datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	h.Host.Apply(stage, ops, h.j.apply(SeamHost, ops, done))
}

// Announce implements datapath.Host.
func (h journalHost) Announce(a []datapath.Announcement, done func(error)) {
	h.j.write(SeamHost, datapath.ClassAnnounce, nil)
	h.Host.Announce(a, done)
}

// FlushConntrack implements datapath.Host. As in the simulator it is counted with the switch's.
func (h journalHost) FlushConntrack(tuples []datapath.Tuple, done func(error)) {
	h.j.write(SeamSwitch, datapath.ClassFlush, nil)
	h.Host.FlushConntrack(tuples, done)
}

// IPAM returns an address management whose writes are counted. A GC is not: as a rule it finds nothing to free.
func (j *Journal) IPAM(i edge.IPAM) edge.IPAM { return journalIPAM{i, j} }

type journalIPAM struct {
	edge.IPAM
	j *Journal
}

// Add implements edge.IPAM.
func (i journalIPAM) Add(a edge.Attachment, done func([]netip.Prefix, error)) {
	i.j.write(SeamHost, ClassIPAM, []string{"sandbox/" + a.ContainerID + "/" + a.Ifname})
	i.IPAM.Add(a, done)
}

// Del implements edge.IPAM.
func (i journalIPAM) Del(a edge.Attachment, done func(error)) {
	i.j.write(SeamHost, ClassIPAM, []string{"sandbox/" + a.ContainerID + "/" + a.Ifname})
	i.IPAM.Del(a, done)
}

// Cluster returns an API whose requests are counted.
func (j *Journal) Cluster(c edge.Cluster) edge.Cluster { return journalCluster{c, j} }

type journalCluster struct {
	edge.Cluster
	j *Journal
}

// UpdateStatus implements edge.Cluster.
func (c journalCluster) UpdateStatus(o runtime.Object, done func(runtime.Object, error)) {
	c.j.write(SeamAPI, ClassAPIStatus, objectUnits(o))
	c.Cluster.UpdateStatus(o, c.j.request(kindOf(o), "update status", done))
}

// Update implements edge.Cluster.
func (c journalCluster) Update(o runtime.Object, done func(runtime.Object, error)) {
	c.j.write(SeamAPI, ClassAPIStatus, objectUnits(o))
	c.Cluster.Update(o, c.j.request(kindOf(o), "update", done))
}

// Create implements edge.Cluster.
func (c journalCluster) Create(o runtime.Object, done func(runtime.Object, error)) {
	c.j.write(SeamAPI, ClassAPIStatus, objectUnits(o))
	c.Cluster.Create(o, c.j.request(kindOf(o), "create", done))
}

// Get implements edge.Cluster.
func (c journalCluster) Get(kind, namespace, name string, done func(runtime.Object, error)) {
	c.Cluster.Get(kind, namespace, name, c.j.request(kind, "get", done))
}

// Record implements edge.Cluster.
func (c journalCluster) Record(ref edge.Ref, eventType, reason, message string) {
	c.j.write(SeamAPI, ClassRecord, []string{ref.Kind + "/" + ref.Namespace + "/" + ref.Name})
	c.Cluster.Record(ref, eventType, reason, message)
}

// request counts a request that is open, and its result.
func (j *Journal) request(kind, verb string, done func(runtime.Object, error)) func(runtime.Object, error) {
	j.openRequests++
	return func(o runtime.Object, err error) {
		j.openRequests--
		j.requests[requestKey{kind, verb, resultOf(err)}]++
		done(o, err)
	}
}

// resultOf names the result of a request: ok, the reason of the API, or error.
func resultOf(err error) string {
	var st apierrors.APIStatus
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &st) && st.Status().Reason != "":
		return string(st.Status().Reason)
	}
	return "error"
}

func objectUnits(o runtime.Object) []string {
	m, err := meta.Accessor(o)
	if err != nil {
		return nil
	}
	return []string{kindOf(o) + "/" + m.GetNamespace() + "/" + m.GetName()}
}

var verbs = []edge.CNIVerb{edge.CNIAdd, edge.CNIDel, edge.CNICheck, edge.CNIGC, edge.CNIStatus}

// Call counts a CNI call that is handed to the loop, and its answer.
func (j *Journal) Call(req *edge.CNIRequest) {
	reply, began, verb := req.Reply, time.Now(), req.Verb
	if !slices.Contains(verbs, verb) {
		verb = "other" // whatever the caller wrote
	}
	j.openCalls++
	req.Reply = func(r edge.CNIReply) {
		j.openCalls--
		code := 0
		if r.Err != nil {
			code = r.Err.Code
		}
		j.calls[callKey{verb, code}]++
		h := j.callTime[verb]
		if h == nil {
			h = &agent.Histogram{}
			j.callTime[verb] = h
		}
		h.Observe(time.Since(began))
		reply(r)
	}
}

// kindOf names the kind of an object that the agent writes.
func kindOf(o runtime.Object) string {
	switch o.(type) {
	case *v1beta1.Egress:
		return edge.KindEgress
	case *v1beta1.ExternalIPPool:
		return edge.KindExternalIPPool
	case *v1beta1.EgressGroup:
		return edge.KindEgressGroup
	}
	return "other"
}
