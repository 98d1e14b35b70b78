// Package apiserver serves the simulated Kubernetes (package sim/kube) over HTTP, in real time, so that
// agents, the controller and anything else with client-go run against it as they run against a cluster.
// What is valid, defaulted and refused, who wins a conflict, generations, statuses and the controllers are
// those of the simulator; this package adds the protocol, and what a scenario does to it.
//
//	client-go ──HTTP──▶ route.go ──▶ rest.go ──▶ Do ──▶ kube.Cluster ──▶ observer
//	    ▲                   │  who: bearer token                             │
//	    │             fault.go: refuse, timeout, …                           ▼
//	    └──── watch.go ◀── gate.go: hold, close, cut ◀── history.go: the last writes of each kind
//
// Nothing is queued for a watch: it is a place in the history of its kind, and takes what comes after that
// as far as the gate of its client lets it. One that falls behind the history ends with 410 Gone.
//
// A client is told apart by its bearer token: the agent of a node, the controller, anybody else. Faults are
// set by the client's name.
package apiserver
