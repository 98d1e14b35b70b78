package kube

import (
	"fmt"
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// PodPort is a port that a Pod's containers say they serve.
type PodPort struct {
	Name     string
	Port     uint16
	Protocol corev1.Protocol
}

// PodConfig describes a Pod to create.
type PodConfig struct {
	Namespace, Name string
	// Node is where it runs; empty: the scheduler finds one.
	Node        string
	Labels      map[string]string
	Ports       []PodPort
	HostNetwork bool
}

// CreatePod creates a Pod with one container. It has no address and is not ready until its kubelet
// says so: SetPodIPs, SetPodReady.
func (c *Cluster) CreatePod(p PodConfig) error {
	defer c.done()
	container := corev1.Container{Name: "main", Image: "main"}
	for _, port := range p.Ports {
		container.Ports = append(container.Ports, corev1.ContainerPort{Name: port.Name, ContainerPort: int32(port.Port), Protocol: port.Protocol})
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: maps.Clone(p.Labels)},
		Spec:       corev1.PodSpec{NodeName: p.Node, HostNetwork: p.HostNetwork, Containers: []corev1.Container{container}},
	}
	_, err := c.create(kindByName[KindPod], pod)
	return err
}

// BindPod gives a Pod its node, as a scheduler does; it cannot be changed later.
func (c *Cluster) BindPod(namespace, name, node string) error {
	defer c.done()
	pod, ok := get[*corev1.Pod](c, KindPod, namespace+"/"+name)
	switch {
	case !ok:
		return c.tables[KindPod].info.notFound(name)
	case pod.Spec.NodeName == node:
		return nil
	case pod.Spec.NodeName != "":
		return fmt.Errorf("bind Pod %s/%s to %s: it is on node %s", namespace, name, node, pod.Spec.NodeName)
	}
	if _, ok := c.tables[KindNode].objects[node]; !ok {
		return c.tables[KindNode].info.notFound(node)
	}
	c.bind(namespace+"/"+name, node)
	return nil
}

// SetPodIPs sets the addresses of a Pod, which is then running; with none it is pending again.
func (c *Cluster) SetPodIPs(namespace, name string, ips []netip.Addr) error {
	defer c.done()
	return change(c, KindPod, namespace+"/"+name, func(p *corev1.Pod) {
		p.Status.PodIP, p.Status.PodIPs = "", nil
		for i, ip := range ips {
			if i == 0 {
				p.Status.PodIP = ip.String()
			}
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip.String()})
		}
		p.Status.Phase = corev1.PodRunning
		if len(ips) == 0 {
			p.Status.Phase = corev1.PodPending
		}
		if p.Status.StartTime == nil && len(ips) > 0 {
			p.Status.StartTime = ptr.To(c.now())
		}
		if node, ok := get[*corev1.Node](c, KindNode, p.Spec.NodeName); ok && len(ips) > 0 {
			p.Status.HostIP, p.Status.HostIPs = "", nil
			for _, a := range node.Status.Addresses {
				if a.Type != corev1.NodeInternalIP {
					continue
				}
				if p.Status.HostIP == "" {
					p.Status.HostIP = a.Address
				}
				p.Status.HostIPs = append(p.Status.HostIPs, corev1.HostIP{IP: a.Address})
			}
		}
	})
}

// SetPodReady sets the conditions Ready and ContainersReady of a Pod.
func (c *Cluster) SetPodReady(namespace, name string, ready bool) error {
	defer c.done()
	return change(c, KindPod, namespace+"/"+name, func(p *corev1.Pod) {
		setPodCondition(p, corev1.ContainersReady, ready, c.now())
		setPodCondition(p, corev1.PodReady, ready, c.now())
	})
}

// SetPodCondition sets a condition of a Pod, as its agent does for NetworkReady.
func (c *Cluster) SetPodCondition(namespace, name string, condition corev1.PodConditionType, status bool) error {
	defer c.done()
	return change(c, KindPod, namespace+"/"+name, func(p *corev1.Pod) { setPodCondition(p, condition, status, c.now()) })
}

// SetPodTerminating sets the deletion time of a Pod; if it does not serve any more, it is also not ready.
// The object stays until Delete.
func (c *Cluster) SetPodTerminating(namespace, name string, serving bool) error {
	defer c.done()
	return change(c, KindPod, namespace+"/"+name, func(p *corev1.Pod) {
		if p.DeletionTimestamp == nil {
			p.DeletionTimestamp = ptr.To(c.now())
			p.DeletionGracePeriodSeconds = p.Spec.TerminationGracePeriodSeconds
		}
		if !serving {
			setPodCondition(p, corev1.ContainersReady, false, c.now())
			setPodCondition(p, corev1.PodReady, false, c.now())
		}
	})
}

func setPodCondition(p *corev1.Pod, typ corev1.PodConditionType, status bool, now metav1.Time) {
	s := corev1.ConditionFalse
	if status {
		s = corev1.ConditionTrue
	}
	for i := range p.Status.Conditions {
		if cond := &p.Status.Conditions[i]; cond.Type == typ {
			if cond.Status != s {
				cond.Status, cond.Reason, cond.LastTransitionTime = s, "", now
			}
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: typ, Status: s, LastTransitionTime: now})
}

// ServedPorts returns the ports that a Pod's containers declare, in their order, each once; none if
// they declare none.
func ServedPorts(pod *corev1.Pod) []PodPort {
	var out []PodPort
	add := func(containers []corev1.Container, sidecars bool) {
		for i := range containers {
			if sidecars && ptr.Deref(containers[i].RestartPolicy, "") != corev1.ContainerRestartPolicyAlways {
				continue
			}
			for _, p := range containers[i].Ports {
				protocol := p.Protocol
				if protocol == "" {
					protocol = corev1.ProtocolTCP
				}
				out = appendMissing(out, PodPort{p.Name, uint16(p.ContainerPort), protocol})
			}
		}
	}
	add(pod.Spec.Containers, false)
	add(pod.Spec.InitContainers, true)
	return out
}

// targetPort is the port of a Pod that a Service's port goes to; false if it has a name that the
// Pod does not have.
func targetPort(sp *corev1.ServicePort, pod *corev1.Pod) (int32, bool) {
	if sp.TargetPort.Type == intstr.Int {
		if sp.TargetPort.IntVal == 0 {
			return sp.Port, true
		}
		return sp.TargetPort.IntVal, true
	}
	for _, p := range ServedPorts(pod) {
		if p.Name == sp.TargetPort.StrVal && p.Protocol == sp.Protocol {
			return int32(p.Port), true
		}
	}
	return 0, false
}

// defaultPod fills in what the API server does, of what matters here.
func defaultPod(pod *corev1.Pod) {
	defaultPodSpec(&pod.Spec)
	if pod.Status.Phase == "" {
		pod.Status.Phase = corev1.PodPending
	}
}

func defaultPodSpec(s *corev1.PodSpec) {
	if s.RestartPolicy == "" {
		s.RestartPolicy = corev1.RestartPolicyAlways
	}
	if s.DNSPolicy == "" {
		s.DNSPolicy = corev1.DNSClusterFirst
	}
	if s.TerminationGracePeriodSeconds == nil {
		s.TerminationGracePeriodSeconds = ptr.To(int64(corev1.DefaultTerminationGracePeriodSeconds))
	}
	if s.SchedulerName == "" {
		s.SchedulerName = corev1.DefaultSchedulerName
	}
	if s.ServiceAccountName == "" {
		s.ServiceAccountName = "default"
	}
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			for j := range list[i].Ports {
				p := &list[i].Ports[j]
				if p.Protocol == "" {
					p.Protocol = corev1.ProtocolTCP
				}
				if s.HostNetwork && p.HostPort == 0 {
					p.HostPort = p.ContainerPort
				}
			}
		}
	}
}
