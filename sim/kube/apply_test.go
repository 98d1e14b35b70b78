package kube

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const webService = `apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec:
  type: NodePort
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 8080}
  - {name: dns, port: 53, protocol: UDP}
`

// Defaults are filled in, addresses and ports given in ascending order, as the API server does.
func TestServiceDefaults(t *testing.T) {
	w := newWorld(t, "v4")
	w.equal("result", w.apply(webService), "service default/web created")
	s := w.service("web")
	w.equal("clusterIP", s.Spec.ClusterIP, "10.96.0.2")
	w.equal("families", len(s.Spec.IPFamilies), 1)
	w.equal("policy", string(*s.Spec.IPFamilyPolicy), "SingleStack")
	w.equal("internal policy", string(*s.Spec.InternalTrafficPolicy), "Cluster")
	w.equal("external policy", string(s.Spec.ExternalTrafficPolicy), "Cluster")
	w.equal("affinity", string(s.Spec.SessionAffinity), "None")
	w.equal("protocol", string(s.Spec.Ports[0].Protocol), "TCP")
	w.equal("target port", s.Spec.Ports[1].TargetPort.IntValue(), 53)
	w.equal("node ports", [2]int32{s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort}, [2]int32{30000, 30001})
	w.equal("generation", s.Generation, int64(1))
	w.equal("created", s.CreationTimestamp.UTC().Format("15:04:05.000"), "03:04:05.000")

	// The same file again changes nothing; what was filled in stays on a change.
	w.equal("again", w.apply(webService), "service default/web unchanged")
	version := w.Version()
	w.equal("changed", w.apply(strings.Replace(webService, "8080", "9090", 1)), "service default/web configured")
	s = w.service("web")
	w.equal("clusterIP kept", s.Spec.ClusterIP, "10.96.0.2")
	w.equal("node port kept", s.Spec.Ports[0].NodePort, int32(30000))
	w.equal("generation", s.Generation, int64(2))
	w.equal("version ascends", w.Version() > version, true)

	// A label is metadata: no new generation. A label that the file lacks goes.
	w.apply(strings.Replace(strings.Replace(webService, "8080", "9090", 1), "labels: {app: web}", "labels: {x: z}", 1))
	s = w.service("web")
	w.equal("generation", s.Generation, int64(2))
	w.equal("labels", cmp.Equal(s.Labels, map[string]string{"x": "z"}), true)
}

// Addresses and ports ascend, freed ones come again after all others; two Services never have the same.
func TestAllocation(t *testing.T) {
	w := newWorld(t, "dual")
	w.apply(webService)
	w.apply(strings.Replace(webService, "name: web,", "name: b,", 1))
	w.apply(strings.Replace(webService, "name: web,", "name: c,", 1))
	w.ok(w.Delete(KindService, "default", "b"))
	w.apply(`{apiVersion: v1, kind: Service, metadata: {name: d}, spec: {type: LoadBalancer, externalTrafficPolicy: Local, ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}}`)
	d := w.service("d")
	// What b had comes again only when all others were given.
	w.equal("addresses", strings.Join(d.Spec.ClusterIPs, ","), "10.96.0.5,fd00:96::2")
	w.equal("node port", d.Spec.Ports[0].NodePort, int32(30006))
	w.equal("health port", d.Spec.HealthCheckNodePort, int32(30007))

	// The policy no longer needs the health port: a Service may ask for it.
	_, err := w.Patch(KindService, "default", "d", []byte(`{"spec":{"externalTrafficPolicy":"Cluster"}}`))
	w.ok(err)
	w.equal("health port", w.service("d").Spec.HealthCheckNodePort, int32(0))
	// Another type: node ports are free too, the cluster IP stays.
	_, err = w.Patch(KindService, "default", "d", []byte(`{"spec":{"type":"ClusterIP"}}`))
	w.ok(err)
	w.equal("node port", w.service("d").Spec.Ports[0].NodePort, int32(0))
	w.equal("external policy", string(w.service("d").Spec.ExternalTrafficPolicy), "")
	w.apply(`{apiVersion: v1, kind: Service, metadata: {name: e}, spec: {type: NodePort, ports: [{port: 80, nodePort: 30003}]}}`)
	w.refuse(`{apiVersion: v1, kind: Service, metadata: {name: f}, spec: {type: NodePort, ports: [{port: 80, nodePort: 30003}]}}`,
		"spec.ports[0].nodePort: found 30003, which another Service has")
	w.refuse(`{apiVersion: v1, kind: Service, metadata: {name: f}, spec: {clusterIP: 10.96.0.5, ports: [{port: 80}]}}`,
		"spec.clusterIP: found 10.96.0.5, which another Service has")

	// To one family: the second address goes.
	_, err = w.Patch(KindService, "default", "d", []byte(`{"spec":{"ipFamilyPolicy":"SingleStack"}}`))
	w.ok(err)
	w.equal("addresses", strings.Join(w.service("d").Spec.ClusterIPs, ","), "10.96.0.5")
	w.apply(`{apiVersion: v1, kind: Service, metadata: {name: g}, spec: {ipFamilies: [IPv6], ports: [{port: 80}]}}`)
	w.equal("next address", w.service("g").Spec.ClusterIP, "fd00:96::3")
	// And back.
	_, err = w.Patch(KindService, "default", "d", []byte(`{"spec":{"ipFamilyPolicy":"PreferDualStack"}}`))
	w.ok(err)
	w.equal("addresses", strings.Join(w.service("d").Spec.ClusterIPs, ","), "10.96.0.5,fd00:96::4")

	w.apply(`{apiVersion: v1, kind: Service, metadata: {name: h}, spec: {clusterIP: None, selector: {a: b}}}`)
	w.equal("headless", strings.Join(w.service("h").Spec.ClusterIPs, ","), "None")
	w.apply(`{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: ExternalName, externalName: a.b}}`)
	w.equal("external name", w.service("x").Spec.ClusterIP, "")
	w.apply(`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {sessionAffinity: ClientIP, type: NodePort, ports: [{name: t, port: 80}, {port: 80, protocol: UDP, name: u}]}}`)
	a := w.service("a")
	w.equal("affinity timeout", *a.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, int32(10800))
	w.equal("one node port for both protocols", a.Spec.Ports[0].NodePort, a.Spec.Ports[1].NodePort)
}

// At the end of a network, and of the range of node ports, the first free ones come again.
func TestAllocationWrapsAround(t *testing.T) {
	w := newWorld(t, "v4")
	pool, err := newAddressPool(netip.MustParsePrefix("10.97.0.0/29")) // .2 to .6
	w.ok(err)
	w.clusterIPs[false], w.nodePorts = pool, newPortPool(30000, 30004)
	service := func(name string) string {
		return `{apiVersion: v1, kind: Service, metadata: {name: ` + name + `}, spec: {type: NodePort, ports: [{port: 80}]}}`
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		w.apply(service(name))
	}
	w.ok(w.Delete(KindService, "default", "b"))
	w.ok(w.Delete(KindService, "default", "c"))
	for _, s := range []struct {
		name, ip string
		port     int32
	}{{"e", "10.97.0.6", 30004}, {"f", "10.97.0.3", 30001}, {"g", "10.97.0.4", 30002}} {
		w.apply(service(s.name))
		w.equal("address", w.service(s.name).Spec.ClusterIP, s.ip)
		w.equal("node port", w.service(s.name).Spec.Ports[0].NodePort, s.port)
	}
	w.refuse(service("h"), "no free")
}

// The status of a Service is what the file says, and stays if it says nothing.
func TestLoadBalancerStatus(t *testing.T) {
	w := newWorld(t, "v4")
	lb := `{apiVersion: v1, kind: Service, metadata: {name: lb}, spec: {type: LoadBalancer, ports: [{port: 80}]}`
	w.apply(lb + `, status: {loadBalancer: {ingress: [{ip: 172.18.0.200}]}}}`)
	w.equal("given", w.service("lb").Status.LoadBalancer.Ingress[0].IP, "172.18.0.200")
	w.apply(lb + `}`)
	w.equal("kept", w.service("lb").Status.LoadBalancer.Ingress[0].IP, "172.18.0.200")
	w.apply(lb + `, status: {loadBalancer: {}}}`)
	w.equal("kept", w.service("lb").Status.LoadBalancer.Ingress[0].IP, "172.18.0.200")
	w.equal("no new generation", w.service("lb").Generation, int64(1))
	_, err := w.Patch(KindService, "default", "lb", []byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"172.18.0.201"}]}}}`))
	w.ok(err)
	w.equal("patched", w.service("lb").Status.LoadBalancer.Ingress[0].IP, "172.18.0.201")
	w.equal("no new generation", w.service("lb").Generation, int64(1))
	if _, err = w.Patch(KindService, "default", "lb", []byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"x"}]}}}`)); !apierrors.IsInvalid(err) {
		t.Errorf("a bad address in the status: %v", err)
	}
	_, err = w.Patch(KindService, "default", "lb", []byte(`{"spec":{"type":"ClusterIP"}}`))
	w.ok(err)
	w.equal("status goes with the type", len(w.service("lb").Status.LoadBalancer.Ingress), 0)
}

const pool = `apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: pool}
spec:
  ipRanges: [{start: 172.18.0.50, end: 172.18.0.59}, {cidr: 10.50.0.0/30}]
  nodeSelector: {matchLabels: {egress: "yes"}}
`

// An address that the pool gave stays when the file is applied again, until the pool changes; one that
// the file gave goes with it.
func TestEgressKeepsPoolIP(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(pool)
	egress := `{apiVersion: crd.antrea.io/v1beta1, kind: Egress, metadata: {name: web}, spec: {appliedTo: {podSelector: {}}, externalIPPool: pool`
	w.apply(egress + `}}`)
	e := w.egress("web").DeepCopy()
	e.Spec.EgressIP = "172.18.0.50" // the controller
	_, err := w.Update(e)
	w.ok(err)
	w.equal("generation", w.egress("web").Generation, int64(2))
	w.equal("again", w.apply(egress+`}}`), "egress web unchanged")
	w.equal("kept", w.egress("web").Spec.EgressIP, "172.18.0.50")

	w.apply(egress + `, egressIP: 172.18.0.55}}`)
	w.apply(egress + `}}`)
	w.equal("given by the file, then not", w.egress("web").Spec.EgressIP, "")
	_, err = w.Patch(KindEgress, "", "web", []byte(`{"status":{"egressNode":"n1","egressIP":"172.18.0.50","conditions":[{"type":"IPAssigned","status":"True","reason":"Assigned"}]}}`))
	w.ok(err)
	w.equal("generation", w.egress("web").Generation, int64(4))
	w.apply(egress + `, bandwidth: {rate: 10M, burst: 20M}}}`)
	w.equal("status kept", w.egress("web").Status.EgressNode, "n1")
	for path, want := range map[string]string{
		"egressNode": "n1", "condition.IPAssigned": "True", "condition.IPAssigned.reason": "Assigned", "condition.Nothing": "",
		"spec.bandwidth.rate": "10M", "spec.egressIP": "", "metadata.name": "web", "conditions[0].type": "IPAssigned",
	} {
		got, err := Field(w.egress("web"), path)
		w.ok(err)
		w.equal(path, got, want)
	}
}

// Writes with an old version are refused as conflicts; status writes change nothing but the status.
func TestConflicts(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(pool)
	w.apply(`{apiVersion: crd.antrea.io/v1beta1, kind: Egress, metadata: {name: web}, spec: {appliedTo: {podSelector: {}}, externalIPPool: pool}}`)
	first := w.egress("web")
	a := first.DeepCopy()
	a.Status.EgressNode = "n1"
	a.Spec.EgressIP = "172.18.0.59" // not through the status
	a.Labels = map[string]string{"x": "y"}
	_, err := w.UpdateStatus(a)
	w.ok(err)
	got := w.egress("web")
	w.equal("status", got.Status.EgressNode, "n1")
	w.equal("spec", got.Spec.EgressIP, "")
	w.equal("labels", len(got.Labels), 0)
	w.equal("generation", got.Generation, int64(1))
	w.equal("version", got.ResourceVersion != first.ResourceVersion, true)

	b := first.DeepCopy()
	b.Status.EgressNode = "n2"
	if _, err = w.UpdateStatus(b); !apierrors.IsConflict(err) {
		t.Errorf("status with an old version: %v", err)
	}
	b.Spec.EgressIP = "172.18.0.51"
	if _, err = w.Update(b); !apierrors.IsConflict(err) {
		t.Errorf("update with an old version: %v", err)
	}
	b.ResourceVersion = ""
	if _, err = w.UpdateStatus(b); err != nil {
		t.Errorf("without a version: %v", err)
	}
	version := w.Version()
	if _, err = w.UpdateStatus(w.egress("web")); err != nil || w.Version() != version {
		t.Errorf("a write that changes nothing: %v, version %d after %d", err, w.Version(), version)
	}
	w.ok(w.Delete(KindEgress, "", "web"))
	if _, err = w.UpdateStatus(first); !apierrors.IsNotFound(err) {
		t.Errorf("status of what is gone: %v", err)
	}
	w.apply(`{apiVersion: crd.antrea.io/v1beta1, kind: Egress, metadata: {name: web}, spec: {appliedTo: {podSelector: {}}, externalIPPool: pool}}`)
	c := first.DeepCopy()
	c.ResourceVersion = ""
	if _, err = w.UpdateStatus(c); !apierrors.IsConflict(err) {
		t.Errorf("status of another object of the name: %v", err)
	}
	if _, err = w.Create(first.DeepCopy()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create again: %v", err)
	}
	if err = w.Delete(KindEgress, "", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("delete of nothing: %v", err)
	}
}

// The same calls give the same objects, in every detail.
func TestDeterminism(t *testing.T) {
	dump := func() string {
		w := newWorld(t, "dual")
		w.apply(guestbook)
		w.run("a", "n1", "10.10.1.2", map[string]string{"app": "guestbook", "tier": "frontend"})
		var b strings.Builder
		for _, k := range kinds {
			for _, o := range w.List(k.kind) {
				text, err := Field(o, "metadata")
				w.ok(err)
				b.WriteString(text + "\n")
			}
		}
		return b.String()
	}
	first := dump()
	for range 5 {
		if d := cmp.Diff(first, dump()); d != "" {
			t.Fatal(d)
		}
	}
}

const guestbook = `# A frontend and a backend.
apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {a: b}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: frontend
  namespace: shop
spec:
  replicas: 3
  selector:
    matchLabels: {app: guestbook, tier: frontend}
  template:
    metadata:
      labels: {app: guestbook, tier: frontend}
    spec:
      containers:
      - name: php
        image: example.com/frontend:v5
        resources: {requests: {cpu: 100m, memory: 100Mi}}
        env: [{name: GET_HOSTS_FROM, value: dns}]
        readinessProbe: {httpGet: {path: /, port: http}}
        ports: [{name: http, containerPort: 80}]
---
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: frontend, namespace: shop}
  spec:
    selector: {app: guestbook, tier: frontend}
    ports: [{port: 80, targetPort: http}]
- apiVersion: apps/v1
  kind: DaemonSet
  metadata: {name: agent, namespace: shop}
  spec:
    selector: {matchLabels: {name: agent}}
    template:
      metadata: {labels: {name: agent}}
      spec: {hostNetwork: true, containers: [{name: a, image: b}]}
--- # the last
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: in, namespace: shop}
spec: {defaultBackend: {service: {name: frontend, port: {number: 80}}}}
`

// A manifest as people have them: several documents, a List, kinds without effect.
func TestGuestbook(t *testing.T) {
	w := newWorld(t, "v4")
	want := `namespace shop created
configmap shop/settings created (has no effect here)
deployment shop/frontend created
service shop/frontend created
daemonset shop/agent created
ingress shop/in created (has no effect here)`
	if d := cmp.Diff(want, w.apply(guestbook)); d != "" {
		t.Error(d)
	}
	var pods []string
	for _, o := range w.List(KindPod) {
		node, err := Field(o, "spec.nodeName")
		w.ok(err)
		name, err := Field(o, "metadata.name")
		w.ok(err)
		pods = append(pods, name+"@"+node)
	}
	w.equal("pods", strings.Join(pods, " "), "agent-n1@n1 agent-n2@n2 agent-n3@n3 frontend-0@n1 frontend-1@n2 frontend-2@n3")
	w.equal("again", strings.Count(w.apply(guestbook), "unchanged"), 6)
	_, err := w.DeleteFile([]byte(guestbook), "f.yaml")
	w.ok(err)
	w.equal("pods", len(w.List(KindPod)), 0)
	w.equal("slices", len(w.List(KindEndpointSlice)), 0)
}
