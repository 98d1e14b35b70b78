package agent

import (
	"towtank/agent/egress"
	"towtank/agent/nodes"
	"towtank/agent/pods"
	"towtank/agent/services"
	"towtank/agent/tables"
)

// newConcerns returns the parts of the agent. Their order is the order in which they hear of events.
func newConcerns(env *tables.Env) []tables.Concern {
	return []tables.Concern{nodes.New(env), pods.New(env), services.New(env), egress.New(env)}
}
