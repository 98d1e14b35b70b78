package kube

import (
	"strings"
	"testing"
)

const fieldYAML = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default, labels: {app.io/x: w}}
spec: {ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.10.1.9], conditions: {ready: true}}]
---
apiVersion: v1
kind: Endpoints
metadata: {name: old, namespace: default}
subsets: [{addresses: [{ip: 10.10.1.9}], ports: [{port: 8080}]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: default}
data: {a: b, x.y: z}
`

// Every field of an object can be read, and one that its kind does not have is told.
func TestField(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(fieldYAML)
	for _, c := range []struct {
		kind       Kind
		name, path string
		want, err  string
	}{
		{KindEndpointSlice, "web-1", "addressType", "IPv4", ""},
		{KindEndpointSlice, "web-1", "endpoints[0].addresses[0]", "10.10.1.9", ""},
		{KindEndpointSlice, "web-1", "endpoints[0].conditions.ready", "true", ""},
		{KindEndpointSlice, "web-1", "endpoints[1].addresses[0]", "", ""},
		{KindEndpointSlice, "web-1", "ports[0].port", "8080", ""},
		{KindEndpointSlice, "web-1", "metadata.name", "web-1", ""},
		{KindEndpointSlice, "web-1", "kind", "EndpointSlice", ""},
		{KindEndpointSlice, "web-1", "apiVersion", "discovery.k8s.io/v1", ""},
		{KindEndpoints, "old", "subsets[0].addresses[0].ip", "10.10.1.9", ""},
		{"ConfigMap", "c", "data.a", "b", ""},
		{"ConfigMap", "c", "data.x.y", "z", ""},
		{"ConfigMap", "c", "data.none", "", ""},
		{KindService, "web", "metadata.labels.app.io/x", "w", ""},
		{KindService, "web", "spec.ports[0].targetPort", "8080", ""},
		{KindService, "web", "loadBalancer.ingress[0].ip", "", ""},
		{KindService, "web", "metadata.deletionTimestamp", "", ""},

		{KindEndpointSlice, "web-1", "adressType", "", `EndpointSlice has no field "adressType"; did you mean "addressType"?`},
		{KindEndpointSlice, "web-1", "endpoints.addresses", "", `found "addresses", allowed: the index of a list as endpoints[0]`},
		{KindEndpointSlice, "web-1", "endpoints[0].adresses", "", `has no field "endpoints.0.adresses"`},
		{KindEndpointSlice, "web-1", "status.x", "", `EndpointSlice has no field "status"`},
		{KindEndpointSlice, "web-1", "condition.Ready", "", "have no conditions"},
		{KindService, "web", "spec.typ", "", `did you mean "type"?`},
		{KindService, "web", "spec.type.x", "", "spec.type of Service is one value"},
		{KindService, "web", "metadata.creationTimestamp.x", "", "is one value"},
		{KindService, "web", "condition.Ready.raeson", "", `has no field`},
		{"ConfigMap", "c", "a", "", `ConfigMap has no field "a"`},
	} {
		o, err := w.Get(c.kind, "default", c.name)
		w.ok(err)
		got, err := Field(o, c.path)
		if (err != nil) != (CheckField(c.kind, c.path) != nil) {
			t.Errorf("%s %s: CheckField says otherwise than Field: %v", c.kind, c.path, err)
		}
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%s %s = %q, %v; want %q", c.kind, c.path, got, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s %s = %q, error %v; want an error with %q", c.kind, c.path, got, err, c.err)
		}
	}
}
