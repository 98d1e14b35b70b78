package services

import (
	. "github.com/onsi/ginkgo/v2"

	"towtank/scenarios/spec"
)

// cluster is three nodes, an external host, a server on each of two nodes, and a client on each node.
//
//	      ext
//	┌──────┼──────┐
//	n1     n2     n3
//	a,c1   b,c2   c3
func cluster(t spec.T, options ...string) *spec.Scenario {
	s := spec.New(t)
	if len(options) > 0 {
		s.Options(options...)
	}
	s.Nodes("n1", "n2", "n3").External("ext")
	s.Pod("default/a", "n1", "app=web").Pod("default/b", "n2", "app=web")
	return s.Pod("default/c1", "n1").Pod("default/c2", "n2").Pod("default/c3", "n3")
}

var _ = Describe("Service updates", func() {
	It("serves a changed port and not the old one", func() {
		s := cluster(GinkgoT())
		s.Apply(`
			apiVersion: v1
			kind: Service
			metadata: {name: web, namespace: default}
			spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
		`).Settle()
		s.Probe("default/c3", "svc/default/web", spec.Count(10), spec.OK, spec.Backends("default/a", "default/b"))
		s.Patch("service", "default/web", `{"spec":{"ports":[{"port":81,"targetPort":8080}]}}`).Settle()
		s.Probe("default/c3", "svc/default/web", spec.Count(10), spec.OK, spec.Backends("default/a", "default/b"))
		s.Probe("default/c3", "svc/default/web:80", spec.Reject)
		s.Run()
	})
})
