package pods

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"towtank/agent/edge"
	"towtank/agent/tables"
	"towtank/datapath"
)

// status answers STATUS: success means that an ADD would be worked on.
func (p *Pods) status(req *edge.CNIRequest) {
	if !p.networkReady() {
		req.Reply(failed(edge.CNIPluginNotAvailable, "the node's network is not ready"))
		return
	}
	req.Reply(edge.CNIReply{})
}

// early is a GC that came before what is on the node was read.
type early struct {
	req   *edge.CNIRequest
	timer edge.Timer
}

// catchUp works on the GCs that came too early.
func (p *Pods) catchUp() {
	if len(p.early) == 0 || !p.dumpSeen() {
		return
	}
	list := p.early
	p.early = nil
	for _, w := range list {
		w.timer.Stop()
		p.gc(w.req)
	}
}

// gc takes out every sandbox that is not in the list of valid attachments, and frees its address.
func (p *Pods) gc(req *edge.CNIRequest) {
	if !p.dumpSeen() {
		w := &early{req: req}
		w.timer = p.env.Clock.AfterFunc(addLimit, edge.Work, func() {
			p.early = slices.DeleteFunc(p.early, func(x *early) bool { return x == w })
			req.Reply(failed(edge.CNITryAgainLater, "what is on the node was not read within %s", addLimit))
		})
		p.early = append(p.early, w)
		return
	}
	keep := slices.Clone(req.Valid)
	//determinism:ignore adds each attachment once, and the list is sorted before it is used
	for a := range p.calls {
		if !slices.Contains(keep, a) {
			keep = append(keep, a)
		}
	}
	for _, key := range p.env.PodsWithSandbox() {
		for _, s := range slices.Clone(p.env.SandboxesOf(key)) {
			if !slices.Contains(keep, s.Attachment) {
				p.takeOut(s)
			}
		}
	}
	slices.SortFunc(keep, func(a, b edge.Attachment) int { return strings.Compare(tables.SandboxUnit(a), tables.SandboxUnit(b)) })
	p.env.IPAM.GC(keep, nil, func(err error) {
		if err != nil {
			req.Reply(failed(edge.CNIIPAMFailure, "IPAM: %v", err))
			return
		}
		req.Reply(edge.CNIReply{})
	})
}

// check compares what the runtime has in prevResult with what is known, and the container's side of
// the link with what was made.
func (c *call) check() {
	p := c.p
	s := c.sandbox()
	prev := c.req.PrevResult
	if s == nil && !p.dumpSeen() {
		return // an agent that has just started does not know yet
	}
	switch {
	case s == nil:
		c.answer(failed(edge.CNIUnknownContainer, "container %s has no interface %s", c.req.ContainerID, c.req.Ifname))
		return
	case prev == nil:
		c.answer(failed(edge.CNIUnsupportedField, "prevResult is missing"))
		return
	case prev.Ifname != c.req.Ifname:
		c.answer(failed(edge.CNIInvalidNetworkConfig, "prevResult has interface %s, not %s", prev.Ifname, c.req.Ifname))
		return
	}
	if c.phase != waiting {
		return
	}
	if err := p.compare(s, prev); err != nil {
		c.answer(failed(edge.CNICheckInterface, "%v", err))
		return
	}
	link := p.env.Store.Wanted(datapath.Key{Kind: datapath.KindLink, Name: s.HostIf})
	if link == nil {
		return // known, but not rendered yet
	}
	c.phase = getting
	p.env.Host.Check(link, func(err error) {
		if c.phase == answered {
			return // it took too long
		}
		r := edge.CNIReply{}
		if err != nil {
			r = failed(edge.CNICheckInterface, "%v", err)
		}
		c.answer(r)
		p.advanceAll()
		p.env.Wake()
	})
}

func (p *Pods) compare(s *tables.Sandbox, prev *edge.CNIResult) error {
	var errs []error
	differ := func(what, got, want string) {
		if got != want {
			errs = append(errs, fmt.Errorf("%s: prevResult has %s, the sandbox %s", what, got, want))
		}
	}
	differ("sandbox", prev.Netns, s.Netns)
	differ("MAC address", prev.MAC, s.MAC)
	differ("host interface", prev.HostInterface, s.HostIf)
	for _, ip := range s.IPs {
		if !slices.Contains(prev.IPs, ip) {
			errs = append(errs, fmt.Errorf("address %s is not in prevResult", ip))
		}
	}
	unit := s.Unit()
	for _, o := range p.env.Store.Objects(unit) {
		if known := p.env.Store.Known(o.Key()); known == nil || known.String() != o.String() {
			errs = append(errs, fmt.Errorf("%s is not on the node as it should be", o.Key()))
		}
	}
	return errors.Join(errs...)
}
