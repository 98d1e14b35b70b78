package tables

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"towtank/agent/edge"
)

// Resolver has tunnel neighbours known ahead of the first packet. An address that does not answer is
// asked for a few times; after that, when somebody calls Want again with another reason.
type Resolver struct {
	env   *Env
	asks  map[netip.Addr]*ask
	armed bool
}

type ask struct {
	reason string // why: who is thought to hold it
	tries  int
}

// Retries of an address that does not answer. Together they outlast the kernel's three questions, one a
// second: what was asked in vain before the address came up is asked again by then.
const (
	resolveTries = 9
	resolveRetry = 500 * time.Millisecond
)

// resolveRefresh is how often everything that is wanted is asked for again: well within the 15 minutes
// after which OVS forgets a tunnel neighbour that is not used (tnl-neigh-cache.c), so that the first
// packet after a quiet time arrives.
const resolveRefresh = 5 * time.Minute

// NewResolver returns a resolver.
func NewResolver(env *Env) *Resolver { return &Resolver{env: env, asks: map[netip.Addr]*ask{}} }

// Want asks for an address, unless that was done for the same reason.
func (r *Resolver) Want(ip netip.Addr, reason string) {
	if a := r.asks[ip]; a != nil && a.reason == reason {
		return
	}
	a := &ask{reason: reason}
	r.asks[ip] = a
	r.try(ip, a)
	r.arm()
}

// arm has what is wanted asked for again after a while.
func (r *Resolver) arm() {
	if r.armed {
		return
	}
	r.armed = true
	r.env.Clock.AfterFunc(resolveRefresh, edge.Background, func() {
		r.armed = false
		if len(r.asks) > 0 {
			r.Again()
			r.arm()
		}
	})
}

// Forget drops an address: it is asked for again when it is wanted.
func (r *Resolver) Forget(ip netip.Addr) { delete(r.asks, ip) }

// Again asks anew for everything that is wanted: the switch forgot it.
func (r *Resolver) Again() {
	for _, ip := range slices.SortedFunc(maps.Keys(r.asks), netip.Addr.Compare) {
		a := &ask{reason: r.asks[ip].reason}
		r.asks[ip] = a
		r.try(ip, a)
	}
}

func (r *Resolver) try(ip netip.Addr, a *ask) {
	a.tries++
	r.env.Switch.ResolveTunnel([]netip.Addr{ip}, func(err error) {
		if err == nil || r.asks[ip] != a || a.tries >= resolveTries {
			return
		}
		r.env.Clock.AfterFunc(resolveRetry, edge.Work, func() {
			if r.asks[ip] == a {
				r.try(ip, a)
			}
		})
	})
}
