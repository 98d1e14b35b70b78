package kube

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func (w *world) placed() string {
	var out []string
	for _, o := range w.List(KindPod) {
		p := o.(*corev1.Pod)
		out = append(out, p.Name+"@"+p.Spec.NodeName)
	}
	return strings.Join(out, " ")
}

func deploymentOf(kind, name, replicas, spec string) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: %s\nmetadata: {name: %s}\nspec: {%s selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {%s containers: [{name: a, image: b}]}}}\n", kind, name, replicas, spec)
}

// Replicas become Pods with predictable names, spread over the nodes that take them.
func TestReplicas(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(deploymentOf("Deployment", "d", "replicas: 4,", ""))
	w.equal("spread", w.placed(), "d-0@n1 d-1@n2 d-2@n3 d-3@n1")
	w.apply(deploymentOf("Deployment", "d", "replicas: 2,", ""))
	w.equal("fewer", w.placed(), "d-0@n1 d-1@n2")
	old := w.pod("d-0").UID
	w.apply(deploymentOf("Deployment", "d", "replicas: 2,", "nodeSelector: {kubernetes.io/hostname: n3},"))
	w.equal("new template", w.placed(), "d-0@n3 d-1@n3")
	w.equal("a new Pod", w.pod("d-0").UID != old, true)
	w.ok(w.Delete(KindPod, "default", "d-1"))
	w.equal("made again", w.placed(), "d-0@n3 d-1@n3")
	w.ok(w.SetPodIPs("default", "d-0", []netip.Addr{netip.MustParseAddr("10.10.3.2")}))
	w.ok(w.SetPodReady("default", "d-0", true))
	d, err := w.Get(KindDeployment, "default", "d")
	w.ok(err)
	ready, err := Field(d, "readyReplicas")
	w.ok(err)
	w.equal("ready replicas", ready, "1")
	w.ok(w.Delete(KindDeployment, "default", "d"))
	w.equal("gone", w.placed(), "")

	w.apply(deploymentOf("StatefulSet", "s", "replicas: 2, serviceName: s,", "nodeName: n2,"))
	w.equal("fixed node", w.placed(), "s-0@n2 s-1@n2")
	w.equal("identity", w.pod("s-1").Labels["statefulset.kubernetes.io/pod-name"], "s-1")
	w.apply(deploymentOf("ReplicaSet", "s", "", "")) // the name of its Pod is taken
	if e := w.Events(KindReplicaSet, "default", "s"); len(e) != 1 || e[0].Reason != "FailedCreate" {
		t.Errorf("events %v", e)
	}
}

// A DaemonSet has a Pod on every node that it selects, also on one that comes later.
func TestDaemonSet(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(deploymentOf("DaemonSet", "ds", "", "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: NotIn, values: [n2]}]}]}}},"))
	w.equal("selected", w.placed(), "ds-n1@n1 ds-n3@n3")
	w.ok(w.CreateNode(NodeConfig{Name: "n4"}))
	w.equal("a new node", w.placed(), "ds-n1@n1 ds-n3@n3 ds-n4@n4")
	w.ok(w.Delete(KindNode, "", "n1"))
	w.equal("a node less", w.placed(), "ds-n3@n3 ds-n4@n4")
}

// A Pod that no node takes waits until one does.
func TestScheduling(t *testing.T) {
	w := newWorld(t, "v4")
	result := w.apply(`{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeSelector: {disk: ssd}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}], containers: [{name: a, image: b}]}}`)
	w.equal("note", strings.Contains(result, "topologySpreadConstraints is not modelled"), true)
	w.equal("waits", w.placed(), "p@")
	w.ok(w.SetNodeReady("n2", false))
	w.ok(w.ChangeLabels(KindNode, "", "n2", map[string]string{"disk": "ssd"}, nil))
	w.equal("not on a node that is not ready", w.placed(), "p@")
	w.ok(w.SetNodeReady("n2", true))
	w.equal("placed", w.placed(), "p@n2")
	if err := w.BindPod("default", "p", "n1"); err == nil {
		t.Error("bound twice")
	}
	w.equal("phase", string(w.pod("p").Status.Phase), "Pending")
}

func TestServedPorts(t *testing.T) {
	w := newWorld(t, "v4")
	w.apply(`{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {initContainers: [{name: i, image: b, ports: [{containerPort: 1}]}, {name: side, image: b, restartPolicy: Always, ports: [{containerPort: 9}]}], containers: [{name: a, image: b, ports: [{name: x, containerPort: 80}, {containerPort: 53, protocol: UDP}]}]}}`)
	w.equal("ports", fmt.Sprint(ServedPorts(w.pod("p"))), "[{x 80 TCP} { 53 UDP} { 9 TCP}]")
}
