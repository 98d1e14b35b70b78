package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"towtank/agent/apis/crd/v1beta1"
)

// validateMeta checks name, namespace, labels and annotations.
func validateMeta(info *kindInfo, o object) []Problem {
	p := &problems{}
	name := o.GetName()
	var why []string
	switch info.kind {
	case KindService:
		why = validation.IsDNS1035Label(name)
	case KindNamespace:
		why = validation.IsDNS1123Label(name)
	case "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		if name == "" || strings.ContainsAny(name, "/%") {
			why = []string{"a name without / and %"}
		}
	default:
		why = validation.IsDNS1123Subdomain(name)
	}
	switch {
	case name == "" && o.GetGenerateName() != "":
		p.textf("metadata.generateName", "is not supported here: names must be the same in every run; use metadata.name")
	case name == "":
		p.textf("metadata.name", "is required")
	case len(why) > 0:
		p.bad("metadata.name", name, "%s", why[0])
	}
	if ns := o.GetNamespace(); !info.namespaced && ns != "" {
		p.textf("metadata.namespace", "found %q, but objects of kind %s have no namespace", ns, info.kind)
	} else if ns != "" && len(validation.IsDNS1123Label(ns)) > 0 {
		p.bad("metadata.namespace", ns, "the name of a Namespace")
	}
	p.fields(metav1validation.ValidateLabels(o.GetLabels(), field.NewPath("metadata", "labels")))
	p.fields(apivalidation.ValidateAnnotations(o.GetAnnotations(), field.NewPath("metadata", "annotations")))
	return p.list
}

// admit defaults and validates an object that is to be stored; old is nil for a new one. Of a
// Service it also allocates.
func (c *Cluster) admit(info *kindInfo, old, o object) []Problem {
	p := &problems{}
	switch o := o.(type) {
	case *corev1.Service:
		was, _ := old.(*corev1.Service)
		return c.admitService(was, o)
	case *v1beta1.Egress:
		was, _ := old.(*v1beta1.Egress)
		return c.admitEgress(was, o)
	case *v1beta1.ExternalIPPool:
		was, _ := old.(*v1beta1.ExternalIPPool)
		return c.admitPool(was, o)
	case *corev1.Pod:
		was, _ := old.(*corev1.Pod)
		c.admitPod(was, o, p)
	case *corev1.Namespace:
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[corev1.LabelMetadataName] = o.Name
		if o.Status.Phase == "" {
			o.Status.Phase = corev1.NamespaceActive
		}
	case *corev1.Node:
		validateNode(o, p)
		if was, ok := old.(*corev1.Node); ok {
			admitPodCIDRs(was, o, p)
		}
	case *discoveryv1.EndpointSlice:
		was, _ := old.(*discoveryv1.EndpointSlice)
		admitSlice(was, o, p)
	case *legacyEndpoints:
		admitEndpoints(o, p)
	case *appsv1.Deployment:
		o.Spec.Replicas = ptr.To(ptr.Deref(o.Spec.Replicas, 1))
		admitWorkload(p, o.Spec.Replicas, o.Spec.Selector, &o.Spec.Template)
		admitDeploymentStrategy(p, &o.Spec.Strategy)
		if was, ok := old.(*appsv1.Deployment); ok {
			immutable(p, "spec.selector", was.Spec.Selector, o.Spec.Selector)
		}
	case *appsv1.ReplicaSet:
		o.Spec.Replicas = ptr.To(ptr.Deref(o.Spec.Replicas, 1))
		admitWorkload(p, o.Spec.Replicas, o.Spec.Selector, &o.Spec.Template)
		if was, ok := old.(*appsv1.ReplicaSet); ok {
			immutable(p, "spec.selector", was.Spec.Selector, o.Spec.Selector)
		}
	case *appsv1.StatefulSet:
		o.Spec.Replicas = ptr.To(ptr.Deref(o.Spec.Replicas, 1))
		admitWorkload(p, o.Spec.Replicas, o.Spec.Selector, &o.Spec.Template)
		admitStatefulSetStrategy(p, &o.Spec)
		if was, ok := old.(*appsv1.StatefulSet); ok {
			immutable(p, "spec.selector", was.Spec.Selector, o.Spec.Selector)
			immutable(p, "spec.serviceName", was.Spec.ServiceName, o.Spec.ServiceName)
		}
	case *appsv1.DaemonSet:
		admitWorkload(p, nil, o.Spec.Selector, &o.Spec.Template)
		admitDaemonSetStrategy(p, &o.Spec.UpdateStrategy)
		if was, ok := old.(*appsv1.DaemonSet); ok {
			immutable(p, "spec.selector", was.Spec.Selector, o.Spec.Selector)
		}
	}
	return p.list
}

// validateStatus checks the parts of a status that something reads.
func validateStatus(o object) []Problem {
	p := &problems{}
	switch o := o.(type) {
	case *corev1.Service:
		validateLoadBalancerStatus(o, p)
	case *corev1.Pod:
		for i, ip := range o.Status.PodIPs {
			parseIP(p, fmt.Sprintf("status.podIPs[%d].ip", i), ip.IP)
		}
	case *corev1.Node:
		validateNode(o, p)
	case *v1beta1.Egress:
		if o.Status.EgressIP != "" {
			parseIP(p, "status.egressIP", o.Status.EgressIP)
		}
		for i, cond := range o.Status.Conditions {
			oneOf(p, fmt.Sprintf("status.conditions[%d].status", i), cond.Status, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown)
		}
	}
	return p.list
}

func immutable(p *problems, field string, was, is any) {
	if !apiequality.Semantic.DeepEqual(was, is) {
		p.textf(field, "cannot be changed")
	}
}

func validateSelector(p *problems, path string, selector map[string]string) {
	p.fields(metav1validation.ValidateLabels(selector, field.NewPath(path)))
}

func validateLabelSelector(p *problems, path string, s *metav1.LabelSelector) {
	p.fields(metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, field.NewPath(path)))
}

// admitPod defaults and validates a Pod. Of its spec nothing can be changed but images, as in
// Kubernetes of what matters here.
func (c *Cluster) admitPod(old, pod *corev1.Pod, p *problems) {
	if old != nil && pod.Spec.NodeName == "" {
		pod.Spec.NodeName = old.Spec.NodeName
	}
	defaultPod(pod)
	validatePodSpec(p, "spec", &pod.Spec)
	p.list = append(p.list, validateStatus(pod)...)
	if old == nil || len(p.list) > 0 {
		return
	}
	was, is := old.Spec.DeepCopy(), pod.Spec.DeepCopy()
	for _, s := range []*corev1.PodSpec{was, is} {
		for i := range s.Containers {
			s.Containers[i].Image = ""
		}
		for i := range s.InitContainers {
			s.InitContainers[i].Image = ""
		}
	}
	if was.NodeName == "" {
		was.NodeName = is.NodeName // a binding
	}
	if !apiequality.Semantic.DeepEqual(was, is) {
		p.textf("spec", "cannot be changed, apart from the containers' images; delete the Pod first")
	}
}

func validatePodSpec(p *problems, path string, s *corev1.PodSpec) {
	if len(s.Containers) == 0 {
		p.textf(path+".containers", "is required: found no container")
	}
	validateSelector(p, path+".nodeSelector", s.NodeSelector)
	names := map[string]bool{}
	for _, list := range []struct {
		field      string
		containers []corev1.Container
	}{{"initContainers", s.InitContainers}, {"containers", s.Containers}} {
		portNames := map[string]bool{}
		for i := range list.containers {
			container := &list.containers[i]
			at := func(f string) string { return fmt.Sprintf("%s.%s[%d].%s", path, list.field, i, f) }
			switch {
			case container.Name == "":
				p.textf(at("name"), "is required")
			case len(validation.IsDNS1123Label(container.Name)) > 0:
				p.bad(at("name"), container.Name, "lower case letters, digits and -")
			case names[container.Name]:
				p.textf(at("name"), "found %q twice", container.Name)
			}
			names[container.Name] = true
			if container.Image == "" {
				p.textf(at("image"), "is required")
			}
			for j, port := range container.Ports {
				at := func(f string) string { return fmt.Sprintf("%s.%s[%d].ports[%d].%s", path, list.field, i, j, f) }
				if port.ContainerPort < 1 || port.ContainerPort > 65535 {
					p.bad(at("containerPort"), port.ContainerPort, "1 to 65535")
				}
				oneOf(p, at("protocol"), port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
				if port.Name != "" {
					if len(validation.IsValidPortName(port.Name)) > 0 {
						p.bad(at("name"), port.Name, "at most 15 lower case letters, digits and -, with a letter")
					}
					if portNames[port.Name] {
						p.textf(at("name"), "found %q twice", port.Name)
					}
					portNames[port.Name] = true
				}
			}
		}
	}
}

// admitWorkload defaults and validates what all workloads have.
func admitWorkload(p *problems, replicas *int32, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec) {
	const maxReplicas = 10_000
	if replicas != nil && (*replicas < 0 || *replicas > maxReplicas) {
		p.bad("spec.replicas", *replicas, "0 to %d", maxReplicas)
	}
	defaultPodSpec(&template.Spec)
	validatePodSpec(p, "spec.template.spec", &template.Spec)
	p.fields(metav1validation.ValidateLabels(template.Labels, field.NewPath("spec", "template", "metadata", "labels")))
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		p.textf("spec.selector", "is required, and may not be empty")
		return
	}
	validateLabelSelector(p, "spec.selector", selector)
	if s, err := metav1.LabelSelectorAsSelector(selector); err == nil && !s.Matches(labels.Set(template.Labels)) {
		p.textf("spec.template.metadata.labels", "found %v, which spec.selector (%s) does not select", template.Labels, s)
	}
}

func validateNode(n *corev1.Node, p *problems) {
	for i, cidr := range n.Spec.PodCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			p.bad(fmt.Sprintf("spec.podCIDRs[%d]", i), cidr, "a network as 10.10.1.0/24")
		}
	}
	for i, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			parseIP(p, fmt.Sprintf("status.addresses[%d].address", i), a.Address)
		}
	}
}

// admitPodCIDRs refuses other Pod networks for a Node that has some, with what the API server says.
func admitPodCIDRs(old, n *corev1.Node, p *problems) {
	if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR == "" {
		// An update without them keeps them, as a kubelet's does.
		n.Spec.PodCIDR, n.Spec.PodCIDRs = old.Spec.PodCIDR, slices.Clone(old.Spec.PodCIDRs)
		return
	}
	if old.Spec.PodCIDR != "" && old.Spec.PodCIDR != n.Spec.PodCIDR || len(old.Spec.PodCIDRs) > 0 && !slices.Equal(old.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		p.textf("spec.podCIDR", "Forbidden: node updates may not change podCIDR except from \"\" to valid: found %v, it is %v", n.Spec.PodCIDRs, old.Spec.PodCIDRs)
	}
}
