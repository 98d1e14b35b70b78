// Package edge names the seams of the agent besides the Switch and the Host: Kubernetes (Cluster),
// the container runtime (CNI requests), address management (IPAM), membership and time; and the
// events that come in by them. Every effect of the agent crosses one of these seams, and every input
// is one of these events.
package edge

import (
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Clock is the agent's only source of time.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
	// AfterFunc calls f once, as an event of the loop, after d. A work timer (retry, back-off, pacing)
	// is part of settling; a background timer (audit, resync, gossip) is not waited for.
	AfterFunc(d time.Duration, class TimerClass, f func()) Timer
}

// TimerClass says whether settling waits for a timer.
type TimerClass int

// The classes of timers.
const (
	Work TimerClass = iota
	Background
)

// Timer is a running timer; Stop is idempotent and may come too late.
type Timer interface{ Stop() }

// Kinds of Kubernetes objects that agents and the controller watch.
const (
	KindService        = "Service"
	KindEndpointSlice  = "EndpointSlice"
	KindNode           = "Node"
	KindPod            = "Pod"
	KindNamespace      = "Namespace"
	KindEgress         = "Egress"
	KindExternalIPPool = "ExternalIPPool"
	KindEgressGroup    = "EgressGroup"
)

// ObjectEvent says that an object is now as given, or gone (Object nil). Several changes of one
// object may arrive as one event. Objects are shared: nobody changes them.
type ObjectEvent struct {
	Kind   string
	Key    string // namespace/name, or name
	Object runtime.Object
}

// SyncedEvent says that every object of a kind that existed at the start has been delivered.
type SyncedEvent struct{ Kind string }

// Ref names the object of a Kubernetes Event.
type Ref struct{ Kind, Namespace, Name string }

// Cluster is the seam to the Kubernetes API: writes, Events, and live reads. done is called later as
// an event of the loop, exactly once; a conflict is a metav1.StatusReasonConflict error.
type Cluster interface {
	UpdateStatus(obj runtime.Object, done func(runtime.Object, error))
	Update(obj runtime.Object, done func(runtime.Object, error))
	Create(obj runtime.Object, done func(runtime.Object, error))
	Get(kind, namespace, name string, done func(runtime.Object, error))
	// Record writes a Kubernetes Event; eventType is Normal or Warning.
	Record(ref Ref, eventType, reason, message string)
}

// CNI error codes: 1 to 11 of the CNI specification ("Error"), from 100 on our own.
const (
	CNIIncompatibleVersion  = 1
	CNIUnsupportedField     = 2
	CNIUnknownContainer     = 3
	CNIInvalidEnv           = 4
	CNIInvalidNetworkConfig = 7
	CNITryAgainLater        = 11
	CNIPluginNotAvailable   = 50
	CNIIPAMFailure          = 101
	CNIConfigInterface      = 102
	CNICheckInterface       = 103
)

// CNIError is the error object of a CNI reply.
type CNIError struct {
	Code int
	Msg  string
}

// Error implements error.
func (e *CNIError) Error() string { return fmt.Sprintf("CNI error %d: %s", e.Code, e.Msg) }

// Attachment is one interface of one container.
type Attachment struct{ ContainerID, Ifname string }

// CNIVerb is a CNI command.
type CNIVerb string

// The CNI verbs of version 1.1.0 of the specification (VERSION is answered by the plugin itself).
const (
	CNIAdd    CNIVerb = "ADD"
	CNIDel    CNIVerb = "DEL"
	CNICheck  CNIVerb = "CHECK"
	CNIGC     CNIVerb = "GC"
	CNIStatus CNIVerb = "STATUS"
)

// CNIRequest is one call of the container runtime. Reply is called exactly once.
type CNIRequest struct {
	Verb CNIVerb
	Attachment
	Netns        string
	PodNamespace string
	PodName      string
	PrevResult   *CNIResult   // CHECK
	Valid        []Attachment // GC: what is to stay
	Reply        func(CNIReply)
}

// CNIResult is what ADD returns.
type CNIResult struct {
	HostInterface string
	Ifname        string
	Netns         string
	MAC           string
	IPs           []netip.Prefix
	Gateways      []netip.Addr // default gateway per address of IPs
}

// CNIReply answers a request: Err nil is success.
type CNIReply struct {
	Err    *CNIError
	Result *CNIResult
}

// IPAM is the seam to address management.
type IPAM interface {
	Add(a Attachment, done func(ips []netip.Prefix, err error))
	Del(a Attachment, done func(error))
	// GC frees every address but those of keep, and of keepIPs.
	GC(keep []Attachment, keepIPs []netip.Addr, done func(error))
}

// Members is the seam to membership.
type Members interface {
	// SetPeers says which nodes there are, by name, and where. Once they were tried a MembersEvent with Joined
	// set follows, each time.
	SetPeers(peers map[string]netip.Addr)
	// Leave says that this node's agent goes away on purpose.
	Leave()
}

// MembersEvent says which nodes are alive now, this one included; sorted. Joined says that the peers of
// SetPeers were tried: without it, who is missing may just not have been asked.
type MembersEvent struct {
	Alive  []string
	Joined bool
}
