package kube

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

const appService = `apiVersion: v1
kind: Service
metadata: {name: app, labels: {x: z}}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: web}, {name: udp, port: 53, protocol: UDP}]
`

// The endpoints of a Service follow its Pods: address, readiness, termination, labels.
func TestEndpointsFollowPods(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(appService)
	s := w.slices("app")
	w.equal("one empty slice", len(s) == 1 && len(s[0].Endpoints) == 0, true)
	name := s[0].Name

	web := map[string]string{"app": "web", "v": "1"}
	port := PodPort{Name: "web", Port: 8080, Protocol: corev1.ProtocolTCP}
	w.ok(w.CreatePod(PodConfig{Namespace: "default", Name: "a", Node: "n1", Labels: web, Ports: []PodPort{port}}))
	w.equal("without an address", w.endpoints("app"), "")
	w.ok(w.SetPodIPs("default", "a", []netip.Addr{netip.MustParseAddr("10.10.1.2")}))
	w.equal("not ready", w.endpoints("app"), "10.10.1.2")
	w.ok(w.SetPodReady("default", "a", true))
	w.equal("ready", w.endpoints("app"), "10.10.1.2 ready serving")
	w.run("b", "n2", "10.10.2.2", web, port)
	w.run("other", "n2", "10.10.2.3", map[string]string{"app": "db"}, port)
	w.equal("two", w.endpoints("app"), "10.10.1.2 ready serving, 10.10.2.2 ready serving")
	w.ok(w.SetPodTerminating("default", "a", true))
	w.equal("terminating", w.endpoints("app"), "10.10.1.2 serving terminating, 10.10.2.2 ready serving")
	w.ok(w.SetPodTerminating("default", "a", false))
	w.equal("terminating, not serving", w.endpoints("app"), "10.10.1.2 terminating, 10.10.2.2 ready serving")
	w.ok(w.Delete(KindPod, "default", "a"))
	w.ok(w.ChangeLabels(KindPod, "default", "other", map[string]string{"app": "web"}, nil))
	w.equal("another Pod", w.endpoints("app"), "10.10.2.2 ready serving, 10.10.2.3 ready serving")
	w.ok(w.SetNodeReady("n2", false))
	w.equal("node not ready", w.endpoints("app"), "10.10.2.2, 10.10.2.3")

	s = w.slices("app")
	w.equal("the same slice", len(s) == 1 && s[0].Name == name, true)
	w.equal("its labels", fmt.Sprint(s[0].Labels), "map[endpointslice.kubernetes.io/managed-by:endpointslice-controller.k8s.io kubernetes.io/service-name:app x:z]")
	w.equal("ports", fmt.Sprint(len(s[0].Ports), *s[0].Ports[0].Port, *s[0].Ports[1].Port), "2 8080 53")
	e := s[0].Endpoints[0]
	w.equal("node and target", *e.NodeName+" "+e.TargetRef.Name, "n2 b")

	w.ok(w.Delete(KindService, "default", "app"))
	w.equal("no slices", len(w.List(KindEndpointSlice)), 0)
}

// A write that changes nothing for a Service writes no slice; one Pod changes one slice.
func TestSlicesChangeInPlace(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(`{apiVersion: v1, kind: Service, metadata: {name: app}, spec: {selector: {app: web}, ports: [{port: 80}]}}`)
	web := map[string]string{"app": "web"}
	for i := range 250 {
		w.run(fmt.Sprintf("p%03d", i), "n1", fmt.Sprintf("10.10.1.%d", i+2), web)
	}
	sizes := func() string {
		var out []string
		for _, s := range w.slices("app") {
			out = append(out, fmt.Sprint(len(s.Endpoints)))
		}
		return strings.Join(out, " ")
	}
	w.equal("250 endpoints", len(strings.Fields(sizes())), 3)
	versions := func() map[string]string {
		m := map[string]string{}
		for _, s := range w.slices("app") {
			m[s.Name] = s.ResourceVersion
		}
		return m
	}
	before := versions()
	w.ok(w.ChangeAnnotations(KindPod, "default", "p000", map[string]string{"a": "b"}, nil))
	w.equal("an annotation", fmt.Sprint(versions()), fmt.Sprint(before))
	w.ok(w.SetPodReady("default", "p007", false))
	changed := 0
	for name, v := range versions() {
		if before[name] != v {
			changed++
		}
	}
	w.equal("slices that changed", changed, 1)
	w.ok(w.Delete(KindPod, "default", "p000"))
	w.run("q", "n1", "10.10.1.254", web)
	w.equal("the new one fills the gap", len(w.slices("app")), 3)
	for i := 1; i < 250; i++ {
		w.ok(w.Delete(KindPod, "default", fmt.Sprintf("p%03d", i)))
	}
	w.equal("one slice is left", sizes(), "1")
}

// Each family has its slices; a Pod without a named port is an endpoint without it.
func TestSlicesFamiliesAndPorts(t *testing.T) {
	w := newWorld(t, "dual")
	w.apply(strings.Replace(appService, "selector:", "ipFamilyPolicy: PreferDualStack\n  selector:", 1))
	web := map[string]string{"app": "web"}
	w.run("a", "n1", "10.10.1.2", web, PodPort{"web", 8080, corev1.ProtocolTCP})
	w.ok(w.SetPodIPs("default", "a", []netip.Addr{netip.MustParseAddr("10.10.1.2"), netip.MustParseAddr("fd00:10:1::2")}))
	w.run("b", "n1", "10.10.1.3", web, PodPort{"web", 9090, corev1.ProtocolTCP})
	w.run("c", "n1", "10.10.1.4", web)
	var got []string
	for _, s := range w.slices("app") {
		text := string(s.AddressType)
		for _, p := range s.Ports {
			text += fmt.Sprintf(" %s=%d", *p.Name, *p.Port)
		}
		for _, e := range s.Endpoints {
			text += " " + e.Addresses[0]
		}
		got = append(got, text)
	}
	for _, want := range []string{
		"IPv4 http=8080 udp=53 10.10.1.2", "IPv4 http=9090 udp=53 10.10.1.3", "IPv4 udp=53 10.10.1.4", "IPv6 http=8080 udp=53 fd00:10:1::2",
	} {
		if !strings.Contains("\n"+strings.Join(got, "\n")+"\n", "\n"+want+"\n") {
			t.Errorf("no slice %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	_, err := w.Patch(KindService, "default", "app", []byte(`{"spec":{"ipFamilyPolicy":"SingleStack"}}`))
	w.ok(err)
	for _, s := range w.slices("app") {
		w.equal("family", string(s.AddressType), "IPv4")
	}
	_, err = w.Patch(KindService, "default", "app", []byte(`{"spec":{"publishNotReadyAddresses":true}}`))
	w.ok(err)
	w.ok(w.SetPodReady("default", "a", false))
	w.equal("not ready, but published", strings.Contains(w.endpoints("app"), "10.10.1.2 ready") && !strings.Contains(w.endpoints("app"), "10.10.1.2 ready serving"), true)
}

// Hints say for which zone or node an endpoint is, and follow the node's label.
func TestHints(t *testing.T) {
	w := newWorld(t, "v4")
	zone := func(node, zone string) {
		w.ok(w.ChangeLabels(KindNode, "", node, map[string]string{corev1.LabelTopologyZone: zone}, nil))
	}
	zone("n1", "a")
	zone("n2", "b")
	w.apply(`{apiVersion: v1, kind: Service, metadata: {name: app}, spec: {selector: {app: web}, trafficDistribution: PreferSameNode, ports: [{port: 80}]}}`)
	w.run("p1", "n1", "10.10.1.2", map[string]string{"app": "web"})
	w.run("p2", "n2", "10.10.2.2", map[string]string{"app": "web"})
	w.run("p3", "n2", "10.10.2.3", map[string]string{"app": "web"})
	w.ok(w.SetPodReady("default", "p3", false))
	hints := func() string {
		var out []string
		for _, e := range w.slices("app")[0].Endpoints {
			text := ""
			if e.Hints != nil {
				for _, z := range e.Hints.ForZones {
					text += "z" + z.Name
				}
				for _, n := range e.Hints.ForNodes {
					text += n.Name
				}
			}
			out = append(out, text)
		}
		return strings.Join(out, ",")
	}
	w.equal("same node", hints(), "zan1,zbn2,")
	_, err := w.Patch(KindService, "default", "app", []byte(`{"spec":{"trafficDistribution":"PreferClose"}}`))
	w.ok(err)
	w.equal("same zone", hints(), "za,zb,")
	zone("n2", "c")
	w.equal("another zone", hints(), "za,zc,")
	_, err = w.Patch(KindService, "default", "app", []byte(`{"spec":{"trafficDistribution":null},"metadata":{"annotations":{"service.kubernetes.io/topology-mode":"Auto"}}}`))
	w.ok(err)
	w.equal("annotation", hints(), "za,zc,")
	w.ok(w.ChangeLabels(KindNode, "", "n1", nil, []string{corev1.LabelTopologyZone}))
	w.equal("a node without zone", hints(), ",,")
}

// A Service without selector takes what is written for it: slices, Endpoints, or SetEndpoints.
func TestServiceWithoutSelector(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(`{apiVersion: v1, kind: Service, metadata: {name: app}, spec: {ports: [{name: http, port: 80, targetPort: 8080}]}}`)
	w.equal("none", len(w.slices("app")), 0)
	w.apply(`{apiVersion: v1, kind: Endpoints, metadata: {name: app}, subsets: [{addresses: [{ip: 1.1.1.1, nodeName: n1}], notReadyAddresses: [{ip: 1.1.1.2}], ports: [{name: http, port: 8080}]}]}`)
	w.equal("mirrored", w.endpoints("app"), "1.1.1.1 ready, 1.1.1.2")
	w.equal("by whom", w.slices("app")[0].Labels[discoveryv1.LabelManagedBy], managedByMirror)
	w.apply(`{apiVersion: v1, kind: Endpoints, metadata: {name: app}, subsets: [{addresses: [{ip: 1.1.1.2}], ports: [{name: http, port: 8080}]}]}`)
	w.equal("changed", w.endpoints("app"), "1.1.1.2 ready")
	w.ok(w.Delete(KindEndpoints, "default", "app"))
	w.equal("gone", len(w.slices("app")), 0)

	w.apply("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: mine, labels: {kubernetes.io/service-name: app}}\naddressType: IPv4\nendpoints: [{addresses: [1.1.1.3], conditions: {ready: true}}]\nports: [{port: 80}]\n")
	s := w.slices("app")[0]
	w.equal("defaults", *s.Ports[0].Name+string(*s.Ports[0].Protocol), "TCP")
	w.equal("note", strings.Contains(w.apply("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: stray}\naddressType: IPv4\n"), "belongs to no Service"), true)
	w.ok(w.Delete(KindEndpointSlice, "default", "mine"))

	var list []SliceEndpoint
	for i := range 250 {
		list = append(list, SliceEndpoint{IP: netip.AddrFrom4([4]byte{9, 9, byte(i >> 8), byte(i)}), Node: "n1"})
	}
	w.ok(w.SetEndpoints("default", "app", list))
	w.equal("250 in three slices", len(w.slices("app")), 3)
	w.ok(w.SetEndpoints("default", "app", list[:1]))
	w.equal("one", w.endpoints("app"), "9.9.0.0 ready serving")
	w.equal("port", *w.slices("app")[0].Ports[0].Port, int32(8080))
	w.ok(w.SetEndpoints("default", "app", nil))
	w.equal("none", w.endpoints("app"), "")
	w.ok(w.Delete(KindService, "default", "app"))
	w.equal("gone with the Service", len(w.slices("app")), 0)
}
