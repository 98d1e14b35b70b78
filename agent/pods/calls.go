package pods

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // names only
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
)

// Limits of an ADD.
const (
	addLimit = 30 * time.Second // until the runtime is told to try again
	podLimit = 5 * time.Second  // for the Pod object to be known
)

// phase is how far a call has come.
type phase int

const (
	waiting  phase = iota // for an earlier call, the node's network, the Pod object
	getting               // the Pod object was asked for
	address               // IPAM was asked
	wiring                // the sandbox is wanted and not realised
	removing              // the sandbox is being taken out
	flushing              // its connections are being forgotten
	freeing               // IPAM was told
	answered
)

// call is one CNI call in progress.
type call struct {
	p     *Pods
	req   *edge.CNIRequest
	phase phase
	timer edge.Timer
	// failure is what an ADD that is being rolled back is answered with.
	failure *edge.CNIError
	asked   bool // the Pod object was asked for
	nsAsked bool
	ips     []netip.Prefix // of the sandbox that a DEL removes
	number  int            // in the order in which they came
}

// HandleCNI takes a call of the runtime. Calls for one attachment run one after the other.
func (p *Pods) HandleCNI(req *edge.CNIRequest) {
	switch req.Verb {
	case edge.CNIStatus:
		p.status(req)
		return
	case edge.CNIGC:
		p.gc(req)
		return
	}
	if req.ContainerID == "" || strings.HasPrefix(req.ContainerID, "-") {
		req.Reply(failed(edge.CNIInvalidEnv, "CNI_CONTAINERID %q: want a name that does not begin with '-'", req.ContainerID))
		return
	}
	if req.Ifname == "" || len(req.Ifname) > 15 {
		req.Reply(failed(edge.CNIInvalidEnv, "CNI_IFNAME %q: want 1 to 15 characters", req.Ifname))
		return
	}
	if req.Verb == edge.CNIAdd && req.Netns == "" {
		req.Reply(failed(edge.CNIInvalidEnv, "CNI_NETNS is empty"))
		return
	}
	p.lastCall++
	c := &call{p: p, req: req, number: p.lastCall}
	p.calls[req.Attachment] = append(p.calls[req.Attachment], c)
	if req.Verb == edge.CNIAdd || req.Verb == edge.CNICheck {
		c.timer = p.env.Clock.AfterFunc(addLimit, edge.Work, func() { c.expire() })
	}
	p.advanceAll()
}

func failed(code int, format string, args ...any) edge.CNIReply {
	return edge.CNIReply{Err: &edge.CNIError{Code: code, Msg: fmt.Sprintf(format, args...)}}
}

// active returns the attachments that have calls, in the order in which those came.
func (p *Pods) active() []edge.Attachment {
	list := make([]edge.Attachment, 0, len(p.calls))
	for a := range p.calls {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b edge.Attachment) int { return cmp.Compare(p.calls[a][0].number, p.calls[b][0].number) })
	return list
}

// advanceAll moves every call on as far as the facts allow.
func (p *Pods) advanceAll() {
	p.catchUp()
	for _, a := range p.active() {
		for len(p.calls[a]) > 0 {
			c := p.calls[a][0]
			c.advance()
			if c.phase != answered {
				break
			}
			p.calls[a] = p.calls[a][1:]
		}
		if len(p.calls[a]) == 0 {
			delete(p.calls, a)
		}
	}
}

func (c *call) advance() {
	switch c.req.Verb {
	case edge.CNIAdd:
		c.add()
	case edge.CNIDel:
		c.del()
	case edge.CNICheck:
		c.check()
	default:
		c.answer(failed(edge.CNIInvalidEnv, "CNI_COMMAND %q: want ADD, DEL, CHECK, GC or STATUS", c.req.Verb))
	}
}

func (c *call) answer(r edge.CNIReply) {
	c.phase = answered
	if c.timer != nil {
		c.timer.Stop()
	}
	c.req.Reply(r)
}

// fail rolls an ADD back; it is answered when nothing of it is left.
func (c *call) fail(code int, format string, args ...any) {
	if c.failure == nil {
		c.failure = failed(code, format, args...).Err
		c.p.env.Decide("pods/add-failed")
	}
	if s := c.sandbox(); s != nil {
		c.p.takeOut(s)
	}
	c.phase = removing
}

func (c *call) sandbox() *tables.Sandbox {
	return c.p.env.Sandboxes[tables.SandboxUnit(c.req.Attachment)]
}

// expire ends an ADD that took too long.
func (c *call) expire() {
	switch c.phase {
	case waiting, getting:
		c.failure = failed(edge.CNITryAgainLater, "%s/%s: not ready after %s: %s", c.req.PodNamespace, c.req.PodName, addLimit, c.obstacle()).Err
		c.answer(edge.CNIReply{Err: c.failure})
	case address, wiring:
		obstacle := c.obstacle()
		if c.phase == address {
			c.failure = failed(edge.CNITryAgainLater, "%s/%s: no address after %s", c.req.PodNamespace, c.req.PodName, addLimit).Err
			return // the answer of IPAM rolls it back
		}
		c.fail(edge.CNITryAgainLater, "%s/%s: not wired after %s: %s", c.req.PodNamespace, c.req.PodName, addLimit, obstacle)
	}
	c.p.advanceAll()
	c.p.env.Wake()
}

// obstacle says what an ADD waits for.
func (c *call) obstacle() string {
	unit := tables.SandboxUnit(c.req.Attachment)
	switch {
	case !c.p.networkReady():
		return "the node's network is not ready"
	case c.phase == waiting || c.phase == getting:
		return "its Pod object is not known"
	case c.p.env.Store.UnitPending(unit, datapath.KindLink):
		return "its link is not there"
	case c.p.env.Store.UnitPending(unit, datapath.KindPort):
		return "its port is not there"
	case c.sandbox() != nil && c.p.env.OFPort(c.sandbox().HostIf) == 0:
		return "its port has no OpenFlow port number"
	}
	return "its flows are not there"
}

func (c *call) refused(err error) {
	switch {
	case c.req.Verb == edge.CNIAdd && c.phase == wiring:
		c.fail(edge.CNIConfigInterface, "%s/%s: %v", c.req.PodNamespace, c.req.PodName, err)
	case c.req.Verb == edge.CNIDel && c.phase == removing:
		// The runtime repeats the DEL; what was refused is tried again then, and by back-off.
		c.answer(failed(edge.CNIConfigInterface, "%v", err))
	}
}

// add moves an ADD on.
func (c *call) add() {
	p := c.p
	if c.phase == waiting {
		if s := c.sandbox(); s != nil && s.Netns == c.req.Netns {
			c.phase = wiring // a repeated ADD: the same result
		} else if p.leaving[tables.SandboxUnit(c.req.Attachment)] != nil {
			return // what an earlier DEL left is still being removed
		}
	}
	if c.phase == waiting && p.networkReady() && c.podKnown() {
		c.phase = address
		p.env.IPAM.Add(c.req.Attachment, func(ips []netip.Prefix, err error) { c.addressed(ips, err) })
	}
	unit := tables.SandboxUnit(c.req.Attachment)
	if c.phase == wiring {
		s := c.sandbox()
		podUnit := "podegress/" + s.PodKey()
		if p.env.OFPort(s.HostIf) == 0 || !p.env.Store.Has(unit) || !p.env.Store.Realised(unit) || !p.rendered(unit) ||
			!p.egressReady() || !p.rendered(podUnit) || !p.env.Store.Realised(podUnit) {
			return
		}
		c.succeed(s)
	}
	if c.phase == removing && p.leaving[unit] == nil && c.sandbox() == nil {
		c.phase = freeing
		p.env.IPAM.Del(c.req.Attachment, func(err error) {
			if err != nil {
				p.env.Log.Error(err, "An ADD was rolled back, but its address was not freed", "unit", unit)
			}
			c.answer(edge.CNIReply{Err: c.failure})
			p.advanceAll()
			p.env.Wake()
		})
	}
}

// egressReady reports whether what decides a Pod's source address was heard.
func (p *Pods) egressReady() bool {
	return p.env.AllSynced(p.env.Cfg.EgressKinds()...) && p.env.AllSynced(edge.KindNode, tables.FactAddresses) && p.env.HeardOf
}

// rendered reports whether a unit is not waiting to be rendered.
func (p *Pods) rendered(unit string) bool { return p.env.IsClean(unit) }

// podKnown reports whether the Pod and its Namespace are known: from the watches, else by asking.
func (c *call) podKnown() bool {
	p := c.p
	key := c.req.PodNamespace + "/" + c.req.PodName
	if p.env.Pods[key] == nil {
		c.ask(&c.asked, edge.KindPod, c.req.PodNamespace, c.req.PodName, func(o runtime.Object) {
			if pod, ok := o.(*corev1.Pod); ok && p.env.Pods[key] == nil {
				p.env.Pods[key] = pod
			}
		})
		return false
	}
	if p.env.Namespaces[c.req.PodNamespace] == nil {
		c.ask(&c.nsAsked, edge.KindNamespace, "", c.req.PodNamespace, func(o runtime.Object) {
			if ns, ok := o.(*corev1.Namespace); ok && p.env.Namespaces[c.req.PodNamespace] == nil {
				p.env.Namespaces[c.req.PodNamespace] = ns
			}
		})
		return false
	}
	return true
}

// ask reads an object live, once; if that fails the ADD is to be tried again later.
func (c *call) ask(asked *bool, kind, namespace, name string, found func(runtime.Object)) {
	if *asked {
		return
	}
	*asked = true
	var limit edge.Timer
	over := false
	giveUp := func(why string) {
		if over || c.phase != waiting {
			return
		}
		over = true
		c.answer(failed(edge.CNITryAgainLater, "%s %s/%s: %s", kind, namespace, name, why))
		c.p.advanceAll()
		c.p.env.Wake()
	}
	limit = c.p.env.Clock.AfterFunc(podLimit, edge.Work, func() {
		// The watch may have brought it meanwhile.
		switch {
		case kind == edge.KindPod && c.p.env.Pods[namespace+"/"+name] != nil:
		case kind == edge.KindNamespace && c.p.env.Namespaces[name] != nil:
		default:
			giveUp(fmt.Sprintf("not known after %s", podLimit))
		}
	})
	c.p.env.Cluster.Get(kind, namespace, name, func(o runtime.Object, err error) {
		limit.Stop()
		if over {
			return
		}
		if err != nil {
			giveUp(err.Error())
			return
		}
		over = true
		found(o)
		c.p.advanceAll()
		c.p.env.Wake()
	})
}

// addressed takes the answer of IPAM.
func (c *call) addressed(ips []netip.Prefix, err error) {
	p := c.p
	switch {
	case err != nil:
		c.fail(edge.CNIIPAMFailure, "IPAM: %v", err)
	case c.failure != nil:
		c.fail(c.failure.Code, "%s", c.failure.Msg)
	default:
		c.phase = wiring
		s := &tables.Sandbox{
			Attachment: c.req.Attachment, PodNamespace: c.req.PodNamespace, PodName: c.req.PodName, Netns: c.req.Netns,
			HostIf: HostInterface(c.req.PodName, c.req.Attachment), MAC: pipeline.PodMAC(c.req.ContainerID, c.req.Ifname).String(),
			IPs: ips, Age: p.nextAge(),
		}
		p.env.PutSandbox(s)
		p.env.Dirty(s.Unit())
		p.env.Dirty("podegress/" + s.PodKey())
	}
	p.advanceAll()
	p.env.Wake()
}

// nextAge returns a number that is larger than that of every earlier ADD of this node.
func (p *Pods) nextAge() int64 {
	p.lastAge = max(p.lastAge+1, p.env.Clock.Now().UnixMilli())
	return p.lastAge
}

// HostInterface returns the name of the host end of a Pod's link: 8 characters of the Pod's name, and
// 6 digits of the hash of its attachment.
func HostInterface(pod string, a edge.Attachment) string {
	sum := sha1.Sum([]byte(a.ContainerID + "/" + a.Ifname)) //nolint:gosec // a short name, not a secret
	name := strings.TrimLeft(pod, "-.")
	if len(name) > 8 {
		name = name[:8]
	}
	return strings.ReplaceAll(name, ".", "-") + "-" + hex.EncodeToString(sum[:])[:6]
}

// succeed announces the Pod's addresses and answers.
func (c *call) succeed(s *tables.Sandbox) {
	var ann []datapath.Announcement
	for _, ip := range s.IPs {
		ann = append(ann, datapath.Announcement{IP: ip.Addr(), Link: s.Ifname, Netns: s.Netns})
	}
	if len(ann) > 0 {
		c.p.env.Host.Announce(ann, c.p.logError("A Pod's addresses were not announced", s.Unit()))
	}
	c.answer(edge.CNIReply{Result: c.p.result(s)})
}

func (p *Pods) result(s *tables.Sandbox) *edge.CNIResult {
	return &edge.CNIResult{HostInterface: s.HostIf, Ifname: s.Ifname, Netns: s.Netns, MAC: s.MAC, IPs: s.IPs, Gateways: p.gateways(s.IPs)}
}

// del moves a DEL on. A container that is not known is gone; its address is freed all the same,
// because a process that was killed may have asked for it.
func (c *call) del() {
	p := c.p
	unit := tables.SandboxUnit(c.req.Attachment)
	if c.phase == waiting && p.dumpSeen() {
		if s := c.sandbox(); s != nil {
			c.ips = s.IPs
			p.takeOut(s)
		} else if p.leaving[unit] != nil {
			p.env.Retry(unit)
		}
		c.phase = removing
	}
	if c.phase == removing && p.leaving[unit] == nil && !p.env.Store.Has(unit) {
		c.phase = flushing
		p.forget(c.ips, func() {
			c.phase = freeing
			c.free()
		})
	}
}

// free has IPAM take the address back, and answers.
func (c *call) free() {
	p := c.p
	p.env.IPAM.Del(c.req.Attachment, func(err error) {
		r := edge.CNIReply{}
		if err != nil {
			r = failed(edge.CNIIPAMFailure, "IPAM: %v", err)
		}
		c.answer(r)
		p.advanceAll()
		p.env.Wake()
	})
}

// dumpSeen reports whether the sandboxes that were there at the start are known.
func (p *Pods) dumpSeen() bool { return p.env.Restored() }
