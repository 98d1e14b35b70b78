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
	w.apply(deploymentOf("Deployment", "d", "replicas: 2, strategy: {type: Recreate},", "nodeSelector: {kubernetes.io/hostname: n3},"))
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

// ready makes Pods ready, which then have addresses.
func (w *world) ready(names ...string) {
	for _, name := range names {
		w.ok(w.SetPodIPs("default", name, []netip.Addr{netip.MustParseAddr("10.10.3.2")}))
		w.ok(w.SetPodReady("default", name, true))
	}
}

// versions lists the Pods with their images; those that are ready are marked.
func (w *world) versions() string {
	var out []string
	for _, o := range w.List(KindPod) {
		p := o.(*corev1.Pod)
		out = append(out, p.Name+"="+p.Spec.Containers[0].Image+map[bool]string{true: "!"}[isReady(p)])
	}
	return strings.Join(out, " ")
}

// A change of the template replaces Pods in steps: a Deployment's new ones are there before old ones go, a StatefulSet's go
// from the highest number down, a DaemonSet's a node at a time; each waits for what is not ready yet.
func TestRollout(t *testing.T) {
	w := newWorld(t, "v4")
	apply := func(kind, spec, image string) {
		w.apply(strings.Replace(deploymentOf(kind, "d", spec, ""), "image: b", "image: "+image, 1))
	}
	steps := func(what string, want ...string) {
		for _, step := range want {
			w.equal(what, w.versions(), step)
			for _, o := range w.List(KindPod) {
				if p := o.(*corev1.Pod); !isReady(p) {
					w.ready(p.Name)
					break
				}
			}
		}
		w.ok(w.Delete(Kind(strings.Fields(what)[0]), "default", "d"))
	}
	apply("Deployment", "replicas: 2,", "a")
	w.ready("d-0", "d-1")
	apply("Deployment", "replicas: 2,", "b")
	steps("Deployment", "d-0=a! d-1=a! d-2=b", "d-0=a! d-1=b d-2=b!", "d-1=b! d-2=b!", "d-1=b! d-2=b!")

	spec := "replicas: 4, strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 50%}},"
	apply("Deployment", spec, "a")
	w.ready("d-0", "d-1", "d-2", "d-3")
	apply("Deployment", spec, "b")
	steps("Deployment with maxUnavailable", "d-0=a! d-1=a! d-2=b d-3=b", "d-0=a! d-1=b d-2=b! d-3=b", "d-0=b d-1=b! d-2=b! d-3=b", "d-0=b! d-1=b! d-2=b! d-3=b")

	// One that is not ready is not missed.
	apply("Deployment", "replicas: 2,", "a")
	w.ready("d-0")
	apply("Deployment", "replicas: 2, strategy: {rollingUpdate: {maxUnavailable: 1}},", "b")
	steps("Deployment that is not ready", "d-0=a! d-1=b d-2=b", "d-1=b! d-2=b", "d-1=b! d-2=b!")

	apply("StatefulSet", "replicas: 3,", "a")
	w.ready("d-0", "d-1")
	apply("StatefulSet", "replicas: 3,", "b")
	steps("StatefulSet", "d-0=a! d-1=a! d-2=a", "d-0=a! d-1=a! d-2=b", "d-0=a! d-1=b d-2=b!", "d-0=b d-1=b! d-2=b!", "d-0=b! d-1=b! d-2=b!")

	apply("StatefulSet", "replicas: 2, updateStrategy: {type: OnDelete},", "a")
	w.ready("d-0", "d-1")
	apply("StatefulSet", "replicas: 2, updateStrategy: {type: OnDelete},", "b")
	w.ok(w.Delete(KindPod, "default", "d-0"))
	steps("StatefulSet with OnDelete", "d-0=b d-1=a!")

	apply("DaemonSet", "", "a")
	w.ready("d-n1", "d-n2")
	apply("DaemonSet", "", "b") // the Pod on n3 is not ready: it is the first
	steps("DaemonSet", "d-n1=a! d-n2=a! d-n3=b", "d-n1=b d-n2=a! d-n3=b!", "d-n1=b! d-n2=b d-n3=b!", "d-n1=b! d-n2=b! d-n3=b!")

	// A ReplicaSet leaves the Pods that it has alone.
	apply("ReplicaSet", "replicas: 1,", "a")
	w.ready("d-0")
	apply("ReplicaSet", "replicas: 2,", "b")
	steps("ReplicaSet", "d-0=a! d-1=b")
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
