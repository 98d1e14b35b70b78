package agent

import (
	"time"

	"towtank/agent/edge"
)

// Services are rendered in bursts of two, then at most once a second (SV-01): endpoint churn of a
// large Deployment becomes few Changes. Sandboxes and Egress never wait.
const (
	pacedKind     = "svcport"
	pacingBurst   = 2
	pacingRefresh = time.Second
)

// pacing is a token bucket of Changes that carry Services.
type pacing struct {
	tokens int
	timer  edge.Timer
}

// admit takes a token for the paced units that wait. Without one they stay queued, and a timer takes the
// next turn.
func (p *pacing) admit(l *Loop) bool {
	defer p.arm(l)
	if p.tokens == 0 {
		return false
	}
	p.tokens--
	return true
}

func (p *pacing) arm(l *Loop) {
	if p.timer != nil {
		return
	}
	p.timer = l.seams.Clock.AfterFunc(pacingRefresh, edge.Work, func() {
		p.timer = nil
		if l.stopped {
			return
		}
		if p.tokens < pacingBurst {
			p.tokens++
		}
		if p.tokens < pacingBurst {
			p.arm(l)
		}
		if len(l.queues) > 0 {
			l.wake()
		}
	})
}
