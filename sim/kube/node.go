package kube

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeConfig describes a node to create.
type NodeConfig struct {
	Name string
	// IPs are its internal addresses, PodCIDRs its Pod networks; the first of each is of the first family.
	IPs      []netip.Addr
	PodCIDRs []netip.Prefix
	// Labels are set besides kubernetes.io/hostname and kubernetes.io/os.
	Labels map[string]string
}

// CreateNode creates a node that is ready.
func (c *Cluster) CreateNode(n NodeConfig) error {
	defer c.done()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
		corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}}}
	maps.Copy(node.Labels, n.Labels)
	for i, p := range n.PodCIDRs {
		if i == 0 {
			node.Spec.PodCIDR = p.String()
		}
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
	}
	node.Status.Addresses = nodeAddresses(n.Name, n.IPs)
	setNodeReady(node, true, c.now())
	_, err := c.create(kindByName[KindNode], node)
	return err
}

func nodeAddresses(name string, ips []netip.Addr) []corev1.NodeAddress {
	var out []corev1.NodeAddress
	for _, ip := range ips {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return append(out, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
}

func (c *Cluster) now() metav1.Time { return metav1.NewTime(c.cfg.Now().Truncate(time.Second)) }

// RegisterNode is what a kubelet writes after a boot: the Node if it is not there (any more), else its addresses and
// that it is ready.
func (c *Cluster) RegisterNode(n NodeConfig) error {
	o, err := c.Get(KindNode, "", n.Name)
	if apierrors.IsNotFound(err) {
		return c.CreateNode(n)
	}
	if err != nil {
		return err
	}
	defer c.done()
	addresses := nodeAddresses(n.Name, n.IPs)
	if !slices.Equal(o.(*corev1.Node).Status.Addresses, addresses) {
		if err := change(c, KindNode, n.Name, func(n *corev1.Node) { n.Status.Addresses = addresses }); err != nil {
			return err
		}
	}
	return c.SetNodeReady(n.Name, true)
}

// SetNodeReady sets the condition Ready of a node, if there is one. If it is not ready, its Pods are not ready either,
// as the node controller does; if it is, its Pods stay as they are until their kubelet says more (SetPodReady).
func (c *Cluster) SetNodeReady(name string, ready bool) error {
	if _, err := c.Get(KindNode, "", name); apierrors.IsNotFound(err) {
		return nil
	}
	defer c.done()
	if err := change(c, KindNode, name, func(n *corev1.Node) { setNodeReady(n, ready, c.now()) }); err != nil {
		return err
	}
	if ready {
		return nil
	}
	for _, key := range c.index.podsByNode[name].sorted() {
		if err := change(c, KindPod, key, func(p *corev1.Pod) { setPodCondition(p, corev1.PodReady, false, c.now()) }); err != nil {
			return err
		}
	}
	return nil
}

func setNodeReady(n *corev1.Node, ready bool, now metav1.Time) {
	cond := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
	}
	if !ready {
		cond.Status, cond.Reason, cond.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	}
	for i := range n.Status.Conditions {
		if old := &n.Status.Conditions[i]; old.Type == corev1.NodeReady {
			if old.Status != cond.Status {
				cond.LastTransitionTime, cond.LastHeartbeatTime = now, now
				*old = cond
			}
			return
		}
	}
	cond.LastTransitionTime, cond.LastHeartbeatTime = now, now
	n.Status.Conditions = append(n.Status.Conditions, cond)
}

// ChangeLabels sets and removes labels of an object.
func (c *Cluster) ChangeLabels(kind Kind, namespace, name string, set map[string]string, remove []string) error {
	return c.changeMeta(kind, namespace, name, func(o object) {
		o.SetLabels(changed(o.GetLabels(), set, remove))
	})
}

// ChangeAnnotations sets and removes annotations of an object.
func (c *Cluster) ChangeAnnotations(kind Kind, namespace, name string, set map[string]string, remove []string) error {
	return c.changeMeta(kind, namespace, name, func(o object) {
		o.SetAnnotations(changed(o.GetAnnotations(), set, remove))
	})
}

func (c *Cluster) changeMeta(kind Kind, namespace, name string, f func(object)) error {
	defer c.done()
	t, err := c.table(kind)
	if err != nil {
		return err
	}
	old, ok := t.objects[keyOf(t.info, namespace, name)]
	if !ok {
		return t.info.notFound(name)
	}
	o := old.DeepCopyObject().(object)
	f(o)
	_, err = c.update(t, old, o)
	return err
}

func changed(m, set map[string]string, remove []string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = make(map[string]string)
	}
	maps.Copy(out, set)
	for _, k := range remove {
		delete(out, k)
	}
	return out
}

// CreateNamespace creates a Namespace with labels; Kubernetes adds its name as one.
func (c *Cluster) CreateNamespace(name string, labels map[string]string) error {
	defer c.done()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(labels)}}
	if _, err := c.create(kindByName[KindNamespace], ns); err != nil {
		return fmt.Errorf("create Namespace %s: %w", name, err)
	}
	return nil
}
