package pods

import (
	"time"

	"towtank/agent/edge"
)

// lateAfter is how long a port may be without a number before its Pod is reported as not ready
// (PD-06), and how often that is looked at again.
const lateAfter = 5 * time.Second

// lateness is a port that has no number yet.
type lateness struct {
	timer edge.Timer
}

// mayBeLate starts the watch over a sandbox without a port number.
func (p *Pods) mayBeLate(unit string) {
	if p.late[unit] != nil {
		return
	}
	l := &lateness{}
	p.late[unit] = l
	l.timer = p.env.Clock.AfterFunc(lateAfter, edge.Work, func() {
		s := p.env.Sandboxes[unit]
		if p.late[unit] != l || s == nil {
			return
		}
		if p.env.Pods[s.PodKey()] != nil {
			p.toldLate[s.PodKey()] = true
		}
		p.env.Cluster.Record(edge.Ref{Kind: "Pod", Namespace: s.PodNamespace, Name: s.PodName}, "Warning", "NetworkNotReady",
			"port "+s.HostIf+" has no OpenFlow port number yet")
		p.env.Dirty(unit)
	})
}

// arrived ends the watch: the port has a number. Who was told of a Pod that is not connected is told that it is, be it with
// another sandbox: an ADD that takes too long is rolled back.
func (p *Pods) arrived(unit string) {
	p.notLate(unit)
	s := p.env.Sandboxes[unit]
	if s == nil || !p.toldLate[s.PodKey()] {
		return
	}
	delete(p.toldLate, s.PodKey())
	p.env.Cluster.Record(edge.Ref{Kind: "Pod", Namespace: s.PodNamespace, Name: s.PodName}, "Normal", "NetworkReady",
		"port "+s.HostIf+" is connected")
}

func (p *Pods) notLate(unit string) {
	if l := p.late[unit]; l != nil {
		l.timer.Stop()
		delete(p.late, unit)
	}
}
