package kube

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/internal/spelling"
)

// Kind names a sort of Kubernetes object as a manifest does: Service, Pod, Egress.
type Kind string

// The kinds that have an effect.
const (
	KindService        Kind = "Service"
	KindEndpointSlice  Kind = "EndpointSlice"
	KindEndpoints      Kind = "Endpoints"
	KindPod            Kind = "Pod"
	KindDeployment     Kind = "Deployment"
	KindReplicaSet     Kind = "ReplicaSet"
	KindStatefulSet    Kind = "StatefulSet"
	KindDaemonSet      Kind = "DaemonSet"
	KindNamespace      Kind = "Namespace"
	KindNode           Kind = "Node"
	KindEgress         Kind = "Egress"
	KindExternalIPPool Kind = "ExternalIPPool"
	KindEgressGroup    Kind = "EgressGroup"
)

// object is what the store holds.
type object interface {
	runtime.Object
	metav1.Object
}

// kindInfo describes a kind to the API server.
type kindInfo struct {
	kind       Kind
	group      string
	versions   []string // accepted in manifests; the first is the stored one if the kind has an effect
	plural     string
	short      []string
	namespaced bool
	// effect is set for the kinds that do something here; the others are only kept.
	effect bool
	// untyped kinds have no Go type here; their fields are not checked.
	untyped bool
}

// kinds is every kind the API server knows.
var kinds = []*kindInfo{
	{kind: KindService, versions: []string{"v1"}, plural: "services", short: []string{"svc"}, namespaced: true, effect: true},
	{kind: KindEndpointSlice, group: "discovery.k8s.io", versions: []string{"v1"}, plural: "endpointslices", namespaced: true, effect: true},
	{kind: KindEndpoints, versions: []string{"v1"}, plural: "endpoints", short: []string{"ep"}, namespaced: true, effect: true},
	{kind: KindPod, versions: []string{"v1"}, plural: "pods", short: []string{"po"}, namespaced: true, effect: true},
	{kind: KindDeployment, group: "apps", versions: []string{"v1"}, plural: "deployments", short: []string{"deploy"}, namespaced: true, effect: true},
	{kind: KindReplicaSet, group: "apps", versions: []string{"v1"}, plural: "replicasets", short: []string{"rs"}, namespaced: true, effect: true},
	{kind: KindStatefulSet, group: "apps", versions: []string{"v1"}, plural: "statefulsets", short: []string{"sts"}, namespaced: true, effect: true},
	{kind: KindDaemonSet, group: "apps", versions: []string{"v1"}, plural: "daemonsets", short: []string{"ds"}, namespaced: true, effect: true},
	{kind: KindNamespace, versions: []string{"v1"}, plural: "namespaces", short: []string{"ns"}, effect: true},
	{kind: KindNode, versions: []string{"v1"}, plural: "nodes", short: []string{"no"}, effect: true},
	{kind: KindEgress, group: v1beta1.GroupName, versions: []string{"v1beta1"}, plural: "egresses", short: []string{"eg"}, effect: true},
	{kind: KindExternalIPPool, group: v1beta1.GroupName, versions: []string{"v1beta1"}, plural: "externalippools", short: []string{"eip"}, effect: true},
	{kind: KindEgressGroup, group: v1beta1.GroupName, versions: []string{"v1beta1"}, plural: "egressgroups", effect: true},

	{kind: "Job", group: "batch", versions: []string{"v1"}, plural: "jobs", namespaced: true},
	{kind: "CronJob", group: "batch", versions: []string{"v1"}, plural: "cronjobs", short: []string{"cj"}, namespaced: true},
	{kind: "ConfigMap", versions: []string{"v1"}, plural: "configmaps", short: []string{"cm"}, namespaced: true},
	{kind: "Secret", versions: []string{"v1"}, plural: "secrets", namespaced: true},
	{kind: "ServiceAccount", versions: []string{"v1"}, plural: "serviceaccounts", short: []string{"sa"}, namespaced: true},
	{kind: "ReplicationController", versions: []string{"v1"}, plural: "replicationcontrollers", short: []string{"rc"}, namespaced: true},
	{kind: "LimitRange", versions: []string{"v1"}, plural: "limitranges", namespaced: true},
	{kind: "ResourceQuota", versions: []string{"v1"}, plural: "resourcequotas", namespaced: true},
	{kind: "PersistentVolumeClaim", versions: []string{"v1"}, plural: "persistentvolumeclaims", short: []string{"pvc"}, namespaced: true},
	{kind: "PersistentVolume", versions: []string{"v1"}, plural: "persistentvolumes", short: []string{"pv"}},
	{kind: "StorageClass", group: "storage.k8s.io", versions: []string{"v1"}, plural: "storageclasses", short: []string{"sc"}},
	{kind: "PriorityClass", group: "scheduling.k8s.io", versions: []string{"v1"}, plural: "priorityclasses", short: []string{"pc"}},
	{kind: "RuntimeClass", group: "node.k8s.io", versions: []string{"v1"}, plural: "runtimeclasses"},
	{kind: "Lease", group: "coordination.k8s.io", versions: []string{"v1"}, plural: "leases", namespaced: true},
	{kind: "Ingress", group: "networking.k8s.io", versions: []string{"v1"}, plural: "ingresses", short: []string{"ing"}, namespaced: true},
	{kind: "IngressClass", group: "networking.k8s.io", versions: []string{"v1"}, plural: "ingressclasses"},
	{kind: "NetworkPolicy", group: "networking.k8s.io", versions: []string{"v1"}, plural: "networkpolicies", short: []string{"netpol"}, namespaced: true},
	{kind: "HorizontalPodAutoscaler", group: "autoscaling", versions: []string{"v2", "v1"}, plural: "horizontalpodautoscalers", short: []string{"hpa"}, namespaced: true},
	{kind: "PodDisruptionBudget", group: "policy", versions: []string{"v1"}, plural: "poddisruptionbudgets", short: []string{"pdb"}, namespaced: true},
	{kind: "Role", group: "rbac.authorization.k8s.io", versions: []string{"v1"}, plural: "roles", namespaced: true},
	{kind: "RoleBinding", group: "rbac.authorization.k8s.io", versions: []string{"v1"}, plural: "rolebindings", namespaced: true},
	{kind: "ClusterRole", group: "rbac.authorization.k8s.io", versions: []string{"v1"}, plural: "clusterroles"},
	{kind: "ClusterRoleBinding", group: "rbac.authorization.k8s.io", versions: []string{"v1"}, plural: "clusterrolebindings"},
	{kind: "MutatingWebhookConfiguration", group: "admissionregistration.k8s.io", versions: []string{"v1"}, plural: "mutatingwebhookconfigurations"},
	{kind: "ValidatingWebhookConfiguration", group: "admissionregistration.k8s.io", versions: []string{"v1"}, plural: "validatingwebhookconfigurations"},
	{kind: "APIService", group: "apiregistration.k8s.io", versions: []string{"v1"}, plural: "apiservices", untyped: true},
	{kind: "CustomResourceDefinition", group: "apiextensions.k8s.io", versions: []string{"v1"}, plural: "customresourcedefinitions", short: []string{"crd"}, untyped: true},
}

var kindByName = func() map[Kind]*kindInfo {
	m := make(map[Kind]*kindInfo, len(kinds))
	for _, k := range kinds {
		m[k.kind] = k
	}
	return m
}()

// KindNamed returns the kind that a word means as kubectl reads it: the kind in any case, its
// plural, or its short name.
func KindNamed(word string) (Kind, error) {
	w := strings.ToLower(word)
	var names []string
	for _, k := range kinds {
		if w == strings.ToLower(string(k.kind)) || w == k.plural || slices.Contains(k.short, w) {
			return k.kind, nil
		}
		names = append(names, strings.ToLower(string(k.kind)))
	}
	return "", fmt.Errorf("unknown kind %q%s", word, spelling.Hint(w, names))
}

// ShortNames returns what kubectl calls the kind in short.
func ShortNames(k Kind) []string {
	if info := kindByName[k]; info != nil {
		return info.short
	}
	return nil
}

// Namespaced reports whether objects of the kind are in namespaces.
func (k Kind) Namespaced() bool {
	info := kindByName[k]
	return info != nil && info.namespaced
}

// Resource is the REST resource of the kind.
func (k Kind) Resource() schema.GroupResource {
	if info := kindByName[k]; info != nil {
		return info.resource()
	}
	return schema.GroupResource{}
}

// KindOfResource returns the kind of a REST resource.
func KindOfResource(r schema.GroupResource) (Kind, bool) {
	for _, k := range kinds {
		if k.resource() == r {
			return k.kind, true
		}
	}
	return "", false
}

// Key is the key of an object in Events: namespace/name, or name for cluster-scoped kinds.
func Key(kind Kind, namespace, name string) string {
	if !kind.Namespaced() {
		return name
	}
	return namespace + "/" + name
}

// apiVersion is the stored version as a manifest writes it.
func (k *kindInfo) apiVersion() string { return k.groupVersion(k.versions[0]) }

func (k *kindInfo) groupVersion(version string) string {
	if k.group == "" {
		return version
	}
	return k.group + "/" + version
}

// apiVersions are all accepted versions, for errors.
func (k *kindInfo) apiVersions() string {
	var out []string
	for _, v := range k.versions {
		out = append(out, k.groupVersion(v))
	}
	return strings.Join(out, ", ")
}

func (k *kindInfo) resource() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.plural}
}

func (k *kindInfo) notFound(name string) error { return apierrors.NewNotFound(k.resource(), name) }

// object returns an empty object of the kind.
func (k *kindInfo) object(version string) (object, error) {
	switch k.kind {
	case KindEgress:
		return &v1beta1.Egress{}, nil
	case KindExternalIPPool:
		return &v1beta1.ExternalIPPool{}, nil
	case KindEgressGroup:
		return &v1beta1.EgressGroup{}, nil
	}
	if k.untyped {
		return &unstructured.Unstructured{}, nil
	}
	o, err := scheme.Scheme.New(schema.GroupVersionKind{Group: k.group, Version: version, Kind: string(k.kind)})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", k.groupVersion(version), k.kind, err)
	}
	typed, ok := o.(object)
	if !ok {
		return nil, fmt.Errorf("%s %s: is no object with metadata", k.groupVersion(version), k.kind)
	}
	return typed, nil
}

// kindOf returns the kind of an object.
func kindOf(o runtime.Object) (*kindInfo, error) {
	var k Kind
	switch o.(type) {
	case *corev1.Service:
		k = KindService
	case *discoveryv1.EndpointSlice:
		k = KindEndpointSlice
	case *legacyEndpoints:
		k = KindEndpoints
	case *corev1.Pod:
		k = KindPod
	case *appsv1.Deployment:
		k = KindDeployment
	case *appsv1.ReplicaSet:
		k = KindReplicaSet
	case *appsv1.StatefulSet:
		k = KindStatefulSet
	case *appsv1.DaemonSet:
		k = KindDaemonSet
	case *corev1.Namespace:
		k = KindNamespace
	case *corev1.Node:
		k = KindNode
	case *v1beta1.Egress:
		k = KindEgress
	case *v1beta1.ExternalIPPool:
		k = KindExternalIPPool
	case *v1beta1.EgressGroup:
		k = KindEgressGroup
	case nil:
		return nil, errors.New("no object")
	default:
		k = Kind(o.GetObjectKind().GroupVersionKind().Kind)
		if gvks, _, err := scheme.Scheme.ObjectKinds(o); err == nil && len(gvks) > 0 {
			k = Kind(gvks[0].Kind)
		}
	}
	info := kindByName[k]
	if info == nil {
		return nil, fmt.Errorf("objects of type %T are not known here", o)
	}
	return info, nil
}

// spec returns what a change of bumps the generation of, nil for kinds that have no generation.
func spec(o object) any {
	switch o := o.(type) {
	case *corev1.Service:
		return &o.Spec
	case *discoveryv1.EndpointSlice:
		return sliceSpec{Endpoints: o.Endpoints, Ports: o.Ports}
	case *legacyEndpoints:
		return o.Subsets
	case *corev1.Pod:
		return &o.Spec
	case *appsv1.Deployment:
		return &o.Spec
	case *appsv1.ReplicaSet:
		return &o.Spec
	case *appsv1.StatefulSet:
		return &o.Spec
	case *appsv1.DaemonSet:
		return &o.Spec
	case *corev1.Node:
		return &o.Spec
	case *v1beta1.Egress:
		return &o.Spec
	case *v1beta1.ExternalIPPool:
		return &o.Spec
	case *v1beta1.EgressGroup:
		return o.GroupMembers
	}
	return nil
}

// sliceSpec is what an EndpointSlice has instead of a spec. DeepEqual looks at exported fields only.
type sliceSpec struct {
	Endpoints []discoveryv1.Endpoint
	Ports     []discoveryv1.EndpointPort
}

// copyStatus gives to the status of from, which is of the same type; false if the kind has none.
func copyStatus(to, from object) bool {
	switch to := to.(type) {
	case *corev1.Service:
		from.(*corev1.Service).Status.DeepCopyInto(&to.Status)
	case *corev1.Pod:
		from.(*corev1.Pod).Status.DeepCopyInto(&to.Status)
	case *appsv1.Deployment:
		from.(*appsv1.Deployment).Status.DeepCopyInto(&to.Status)
	case *appsv1.ReplicaSet:
		from.(*appsv1.ReplicaSet).Status.DeepCopyInto(&to.Status)
	case *appsv1.StatefulSet:
		from.(*appsv1.StatefulSet).Status.DeepCopyInto(&to.Status)
	case *appsv1.DaemonSet:
		from.(*appsv1.DaemonSet).Status.DeepCopyInto(&to.Status)
	case *corev1.Namespace:
		from.(*corev1.Namespace).Status.DeepCopyInto(&to.Status)
	case *corev1.Node:
		from.(*corev1.Node).Status.DeepCopyInto(&to.Status)
	case *v1beta1.Egress:
		from.(*v1beta1.Egress).Status.DeepCopyInto(&to.Status)
	case *v1beta1.ExternalIPPool:
		to.Status = from.(*v1beta1.ExternalIPPool).Status
	default:
		return false
	}
	return true
}

// AllKinds returns every kind that the API server knows, those without an effect included.
func AllKinds() []Kind {
	out := make([]Kind, len(kinds))
	for i, k := range kinds {
		out[i] = k.kind
	}
	return out
}

// APIVersion is the version under which objects of the kind are stored, with its group as a manifest
// writes it.
func (k Kind) APIVersion() string {
	if info := kindByName[k]; info != nil {
		return info.apiVersion()
	}
	return ""
}

// HasStatus reports whether objects of the kind have a status subresource.
func (k Kind) HasStatus() bool {
	info := kindByName[k]
	if info == nil || !info.effect {
		return false
	}
	o, err := info.object(info.versions[0])
	return err == nil && copyStatus(o, o)
}
