package kube

import (
	"strings"
	"testing"
)

// Every mistake in a manifest is refused with file, line, object, field, what was found and what is
// allowed.
func TestRefused(t *testing.T) {
	svc := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {" + spec + "}\n"
	}
	egress := func(spec string) string {
		return "apiVersion: crd.antrea.io/v1beta1\nkind: Egress\nmetadata: {name: e}\nspec: {" + spec + "}\n"
	}
	pool := func(spec string) string {
		return "apiVersion: crd.antrea.io/v1beta1\nkind: ExternalIPPool\nmetadata: {name: p}\nspec: {" + spec + "}\n"
	}
	pod := func(spec string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {" + spec + "}\n"
	}
	slice := func(rest string) string {
		return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s}\n" + rest
	}
	endpoints := func(subsets string) string {
		return "apiVersion: v1\nkind: Endpoints\nmetadata: {name: e}\nsubsets: " + subsets + "\n"
	}
	deployment := func(spec string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {" + spec + "}\n"
	}
	for _, c := range []struct{ yaml, want string }{
		{"", "f.yaml: found no object"},
		{"# nothing\n---\n", "f.yaml: found no object"},
		{"a: b\n", "f.yaml:1: kind: is required"},
		{"- a\n", "found a list, allowed: an object with apiVersion, kind and metadata"},
		{"a: b: c\n", "f.yaml:1: not YAML: "},
		{"kind: Service\n---\na: [\nb: c\n", "f.yaml:4: not YAML: line 4"},
		{"kind: Service\nkind: Pod\n", "already set in map"},
		{"# x\napiVersion: v1\nkind: Servce\nmetadata: {name: a}\n", `f.yaml:3: a: kind: unknown kind "Servce" of v1; did you mean "Service"?`},
		{"apiVersion: v1\nkind: Deployment\nmetadata: {name: a}\n", `f.yaml:1: a: apiVersion: found "v1" for kind Deployment, allowed: apps/v1`},
		{"apiVersion: crd.antrea.io/v1alpha2\nkind: Egress\nmetadata: {name: a}\n", `allowed: crd.antrea.io/v1beta1`},
		{svc("ports: [{port: 80}]") + "  typo: x\n", "not YAML"},
		{"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  ports:\n  - port: 80\n    targtPort: 90\n", "f.yaml:7: Service web: spec.ports[0].targtPort: unknown field"},
		{"---\n---\napiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  label: x\n", "f.yaml:7: Service web: metadata.label: unknown field"},
		{svc("ports: [{port: eighty}]"), "f.yaml:4: Service web: spec.ports.port: found a string, allowed: a whole number of 32 bits"},
		{"apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  labels:\n    egress: yes\nspec: {ports: [{port: 80}]}\n", `f.yaml:6: Service web: metadata.labels.egress: found yes, which YAML reads as a boolean, allowed: a string; write egress: "yes"`},
		{"apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  labels:\n    a.b/version: 1.10\nspec: {ports: [{port: 80}]}\n", `f.yaml:6: Service web: metadata.labels.a.b/version: found 1.10, which YAML reads as a number, allowed: a string; write a.b/version: "1.10"`},
		{egress(`appliedTo: {podSelector: {matchLabels: {on: "1", web: on}}}, egressIP: 1.2.3.4`), `spec.appliedTo.podSelector.matchLabels.web: found on, which YAML reads as a boolean`},
		{svc("selector: {app: 1}, ports: [{port: 80}]"), `spec.selector.app: found 1, which YAML reads as a number`},
		{"apiVersion: v1\nkind: Service\nmetadata: {name: Web}\nspec: {ports: [{port: 80}]}\n", `f.yaml:3: Service default/Web: metadata.name: found "Web"`},
		{"apiVersion: v1\nkind: Service\nmetadata: {generateName: web-}\n", "names must be the same in every run"},
		{"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: nowhere}\nspec: {ports: [{port: 80}]}\n", `Service nowhere/web: namespaces "nowhere" not found`},
		{"apiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: b}\n", `metadata.namespace: found "b", but objects of kind Namespace have no namespace`},
		{svc("clusterIP: None, type: NodePort, ports: [{port: 80}]"), "spec.clusterIP: may not be None for type NodePort"},
		{svc("clusterIP: None, type: LoadBalancer, ports: [{port: 80}]"), "spec.clusterIP: may not be None for type LoadBalancer"},
		{svc("externalIPs: [224.0.0.1], ports: [{port: 80}]"), `spec.externalIPs[0]: found "224.0.0.1", allowed: an address that is not`},
		{slice("addressType: IPv4\nendpoints: [{addresses: [127.0.0.1]}]\n"), `endpoints[0].addresses[0]: found "127.0.0.1", allowed: an address that is not`},
		{slice("addressType: IPv4\nendpoints: [{addresses: [169.254.1.1]}]\n"), `endpoints[0].addresses[0]: found "169.254.1.1"`},
		{slice("addressType: IPv6\nendpoints: [{addresses: [\"::\"]}]\n"), `endpoints[0].addresses[0]: found "::"`},
		{slice("addressType: IPv4\nendpoints: [{addresses: [10.0.0.1], hints: {forZones: [{name: a}, {name: a}]}}]\n"), `endpoints[0].hints.forZones[1].name: found "a" twice`},
		{slice("addressType: IPv4\nendpoints: [{addresses: [10.0.0.1], hints: {forNodes: [{name: A_}]}}]\n"), `endpoints[0].hints.forNodes[0].name: found "A_", allowed: the name of a Node`},
		{slice("addressType: IPv4\nendpoints: [{addresses: [10.0.0.1], hints: {forZones: [{name: a},{name: b},{name: c},{name: d},{name: e},{name: f},{name: g},{name: h},{name: i}]}}]\n"), "endpoints[0].hints.forZones: found 9, allowed: at most 8"},
		{endpoints("[{addresses: [{ip: 127.0.0.1}], ports: [{port: 80}]}]"), `subsets[0].addresses[0].ip: found "127.0.0.1", allowed: an address that is not`},
		{endpoints("[{notReadyAddresses: [{ip: 224.0.0.1}], ports: [{port: 80}]}]"), `subsets[0].notReadyAddresses[0].ip: found "224.0.0.1"`},
		{endpoints("[{ports: [{port: 80}]}]"), "subsets[0]: must specify addresses or notReadyAddresses"},
		{deployment("strategy: {type: Slow}, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}"), `spec.strategy.type: found "Slow", allowed: RollingUpdate, Recreate`},
		{deployment("strategy: {type: Recreate, rollingUpdate: {maxSurge: 1}}, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}"), "spec.strategy.rollingUpdate: may only be set for type RollingUpdate"},
		{deployment("strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}"), "maxUnavailable: may not be 0 when maxSurge is 0"},
		{deployment("strategy: {rollingUpdate: {maxSurge: many}}, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}"), `maxSurge: found "many", allowed: 0 and more, or a share as 25%`},
		{svc("type: Nodeport, ports: [{port: 80}]"), `spec.type: found "Nodeport", allowed: ClusterIP, NodePort, LoadBalancer, ExternalName`},
		{svc("selector: {a: b}"), "spec.ports: is required"},
		{svc("ports: [{port: 80}, {port: 81, name: a}]"), "spec.ports[0].name: is required if there are several ports"},
		{svc("ports: [{port: 80, name: a}, {port: 81, name: a}]"), `spec.ports[1].name: found "a" twice`},
		{svc("ports: [{port: 80, name: a}, {port: 80, name: b}]"), "spec.ports[1].port: found 80/TCP twice"},
		{svc("ports: [{port: 0}]"), "spec.ports[0].port: found 0, allowed: 1 to 65535"},
		{svc("ports: [{port: 80, protocol: tcp}]"), `spec.ports[0].protocol: found "tcp", allowed: TCP, UDP, SCTP`},
		{svc("ports: [{port: 80, targetPort: Bad_Name}]"), "spec.ports[0].targetPort"},
		{svc("ports: [{port: 80, nodePort: 30001}]"), "spec.ports[0].nodePort: may not be set for type ClusterIP"},
		{svc("type: NodePort, ports: [{port: 80, nodePort: 80}]"), "spec.ports[0].nodePort: found 80, allowed: 30000 to 32767"},
		{svc("clusterIP: 10.0.0.1, ports: [{port: 80}]"), `spec.clusterIP: found "10.0.0.1", allowed: an address of the Service network 10.96.0.0/16`},
		{svc("clusterIP: bad, ports: [{port: 80}]"), `spec.clusterIP: found "bad", allowed: an IP address`},
		{svc("ipFamilies: [IPv6], ports: [{port: 80}]"), `spec.ipFamilies[0]: found "IPv6", allowed: [IPv4]`},
		{svc("ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]"), "the cluster has one family only"},
		{svc("externalIPs: [127.0.0.1], ports: [{port: 80}]"), "spec.externalIPs[0]"},
		{svc("externalTrafficPolicy: Local, ports: [{port: 80}]"), "spec.externalTrafficPolicy: may only be set for NodePort and LoadBalancer"},
		{svc("internalTrafficPolicy: local, ports: [{port: 80}]"), `spec.internalTrafficPolicy: found "local", allowed: Cluster, Local`},
		{svc("type: NodePort, healthCheckNodePort: 30009, ports: [{port: 80}]"), "spec.healthCheckNodePort: may only be set"},
		{svc("loadBalancerSourceRanges: [10.0.0.0/8], ports: [{port: 80}]"), "spec.loadBalancerSourceRanges: may only be set"},
		{svc("type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0], ports: [{port: 80}]"), `spec.loadBalancerSourceRanges[0]: found "10.0.0.0"`},
		{svc("sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}, ports: [{port: 80}]"), "timeoutSeconds: found 86401, allowed: 1 to 86400"},
		{svc("type: ExternalName"), "spec.externalName: is required"},
		{svc("trafficDistribution: Near, ports: [{port: 80}]"), "spec.trafficDistribution"},
		{svc("ports: [{port: 80}]") + "status: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}}\n", "status.loadBalancer: may only be set if spec.type is LoadBalancer"},
		{egress("egressIP: 1.2.3.4"), "spec.appliedTo: is required"},
		{egress("appliedTo: {}"), "found neither egressIP nor externalIPPool"},
		{egress("appliedTo: {}, egressIP: 1.2.3"), `spec.egressIP: found "1.2.3", allowed: an IP address`},
		{egress("appliedTo: {}, egressIPs: [1.2.3.4]"), "spec.egressIPs: is not supported yet"},
		{egress("appliedTo: {}, externalIPPools: [a]"), "spec.externalIPPools: is not supported yet"},
		{egress("appliedTo: {}, egressIP: 1.2.3.4, externalIPPool: none"), `spec.externalIPPool: there is no ExternalIPPool "none"`},
		{egress("appliedTo: {}, egressIP: 1.2.3.4, externalIPPool: pool"), "spec.egressIP: found 1.2.3.4, allowed: an address of ExternalIPPool pool"},
		{egress("appliedTo: {}, egressIP: 10.50.0.3, externalIPPool: pool"), "found 10.50.0.3, allowed: an address of"}, // the broadcast address
		{egress("appliedTo: {}, egressIP: 1.2.3.4, bandwidth: {rate: fast, burst: 1M}"), `spec.bandwidth.rate: found "fast", allowed: a quantity`},
		{egress("appliedTo: {podSelector: {matchExpressions: [{key: a, operator: Is}]}}, egressIP: 1.2.3.4"), "spec.appliedTo.podSelector.matchExpressions[0].operator"},
		{pool("ipRanges: [{cidr: 10.0.0.0/24}]"), "spec.nodeSelector: is required"},
		{pool("nodeSelector: {}"), "spec.ipRanges: is required"},
		{pool("nodeSelector: {}, ipRanges: [{cidr: 10.0.0.0}]"), `spec.ipRanges[0]: found cidr "10.0.0.0"`},
		{pool("nodeSelector: {}, ipRanges: [{start: 10.0.0.9, end: 10.0.0.1}]"), "allowed: start not above end"},
		{pool(`nodeSelector: {}, ipRanges: [{start: 10.0.0.9, end: "fd00::1"}]`), "allowed: two addresses of one family"},
		{pool("nodeSelector: {}, ipRanges: [{start: 10.0.0.9}]"), "allowed: cidr, or start and end"},
		{pool("nodeSelector: {}, ipRanges: [{cidr: 10.0.0.0/24, start: 10.0.0.9, end: 10.0.0.10}]"), "found cidr and start or end"},
		{pool("nodeSelector: {}, ipRanges: [{cidr: 10.0.0.0/24}, {start: 10.0.0.9, end: 10.0.1.1}]"), "spec.ipRanges[1]: 10.0.0.9-10.0.1.1 overlaps spec.ipRanges[0]"},
		{pool("nodeSelector: {}, ipRanges: [{start: 172.18.0.59, end: 172.18.0.60}]"), "overlaps 172.18.0.50-172.18.0.59 of ExternalIPPool pool"},
		{pool("nodeSelector: {}, ipRanges: [{cidr: 10.0.0.0/24}], subnetInfo: {gateway: 10.0.1.1, prefixLength: 24}"), "10.0.0.0/24 is not in the subnet 10.0.1.0/24"},
		{pool("nodeSelector: {}, ipRanges: [{cidr: 10.0.0.0/24}], subnetInfo: {gateway: 10.0.0.1, prefixLength: 32}"), "prefixLength: found 32, allowed: 1 to 31"},
		{pool("nodeSelector: {}, ipRanges: [{cidr: 10.0.0.0/24}], subnetInfo: {gateway: x, prefixLength: 24}"), "spec.subnetInfo.gateway"},
		{pool("nodeSelector: {}, ipRanges: [{cidr: 10.0.0.0/24}], subnetInfo: {gateway: 10.0.0.1, prefixLength: 24, vlan: 4095}"), "vlan: found 4095, allowed: 0 to 4094"},
		{pod("hostNetwork: true"), "spec.containers: is required"},
		{pod("containers: [{name: a}]"), "spec.containers[0].image: is required"},
		{pod("containers: [{name: a, image: b}, {name: a, image: b}]"), `spec.containers[1].name: found "a" twice`},
		{pod("containers: [{name: a, image: b, ports: [{containerPort: 70000}]}]"), "spec.containers[0].ports[0].containerPort: found 70000"},
		{slice("addressType: IPv4\nendpoints: [{addresses: [\"fd00::1\"]}]\n"), "endpoints[0].addresses[0]: found \"fd00::1\", allowed: an address of type IPv4"},
		{slice("endpoints: []\n"), "addressType: found \"\", allowed: IPv4, IPv6, FQDN"},
		{slice("addressType: IPv4\nendpoints: [{addresses: []}]\n"), "endpoints[0].addresses: found 0"},
		{deployment("selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: c}}, spec: {containers: [{name: a, image: b}]}}"), "spec.template.metadata.labels: found map[a:c], which spec.selector (a=b) does not select"},
		{deployment("template: {spec: {containers: [{name: a, image: b}]}}"), "spec.selector: is required"},
		{deployment("replicas: -1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}"), "spec.replicas: found -1"},
	} {
		w := newWorld(t, "v4")
		w.apply(`{apiVersion: crd.antrea.io/v1beta1, kind: ExternalIPPool, metadata: {name: pool}, spec: {nodeSelector: {}, ipRanges: [{start: 172.18.0.50, end: 172.18.0.59}, {cidr: 10.50.0.0/30}]}}`)
		w.refuse(c.yaml, c.want)
	}
}

// What cannot be changed is refused on an update.
func TestImmutable(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(webService)
	w.refuse(strings.Replace(webService, "type: NodePort", "type: NodePort\n  clusterIP: 10.96.0.77", 1), `f.yaml:6: Service default/web: spec.clusterIP: cannot be changed: it is "10.96.0.2", found "10.96.0.77"`)
	w.apply(pool)
	w.refuse(strings.Replace(pool, ", {cidr: 10.50.0.0/30}", "", 1), "spec.ipRanges: range 10.50.0.0/30 cannot be changed or removed")
	w.apply(strings.Replace(pool, "[{start", "[{cidr: 10.60.0.0/24}, {start", 1)) // adding one is fine
	w.apply(`{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: b}]}}`)
	w.refuse(`{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: b, ports: [{containerPort: 1}]}]}}`, "spec: cannot be changed")
	w.apply(`{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: b}}, spec: {containers: [{name: a, image: c}]}}`)
	if _, err := w.Patch(KindService, "default", "web", []byte(`{"spec":{"bogus":1}}`)); err == nil || !strings.Contains(err.Error(), "Service default/web: spec.bogus: unknown field") {
		t.Errorf("patch of an unknown field: %v", err)
	}
	if _, err := w.Patch(KindService, "default", "web", []byte(`{"metadata":{"name":"x"}}`)); err == nil {
		t.Error("patch of the name")
	}
	if _, err := w.Patch(KindService, "default", "web", []byte(`[]`)); err == nil {
		t.Error("patch by a list")
	}
	// All mistakes of a file are reported together, and what of it is right is applied, as by kubectl.
	_, err := w.Apply([]byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: new}\n---\napiVersion: v1\nkind: Bogus\n---\napiVersion: v1\nkind: Service\nspeck: {}\n"), "f.yaml")
	if err == nil || len(strings.Split(err.Error(), "\n")) != 2 {
		t.Errorf("got %v", err)
	}
	if _, err := w.Get(KindNamespace, "", "new"); err != nil {
		t.Error("the first document was not applied:", err)
	}
	list, err := w.DeleteFile([]byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: new}\n---\napiVersion: v1\nkind: Bogus\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: nobody}\n"), "f.yaml")
	if len(list) != 1 || list[0].Name != "new" || err == nil || !strings.Contains(err.Error(), "Bogus") || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("deleted %v, %v", list, err)
	}
}

func TestKindNamed(t *testing.T) {
	for word, want := range map[string]Kind{"service": KindService, "SVC": KindService, "egresses": KindEgress, "EndpointSlice": KindEndpointSlice, "po": KindPod} {
		if got, err := KindNamed(word); err != nil || got != want {
			t.Errorf("%s: %v, %v", word, got, err)
		}
	}
	if _, err := KindNamed("servce"); err == nil || !strings.Contains(err.Error(), `did you mean "service"?`) {
		t.Errorf("got %v", err)
	}
}
