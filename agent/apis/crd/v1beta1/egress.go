package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Egress says with which source address the traffic of the Pods it selects leaves the cluster.
type Egress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EgressSpec   `json:"spec"`
	Status EgressStatus `json:"status,omitempty"`
}

// EgressSpec is what the user wants.
type EgressSpec struct {
	// AppliedTo selects the Pods.
	AppliedTo AppliedTo `json:"appliedTo"`
	// EgressIP is the source address, IPv4 or IPv6. Without ExternalIPPool it is static: whichever
	// node has it owns it. With ExternalIPPool and empty it is filled in from the pool.
	EgressIP string `json:"egressIP,omitempty"`
	// EgressIPs exists on the wire for dual stack; it is refused as not supported.
	EgressIPs []string `json:"egressIPs,omitempty"`
	// ExternalIPPool is the name of the pool that EgressIP comes from.
	ExternalIPPool string `json:"externalIPPool,omitempty"`
	// ExternalIPPools exists on the wire for dual stack; it is refused as not supported.
	ExternalIPPools []string `json:"externalIPPools,omitempty"`
	// Bandwidth limits the traffic of this Egress; nil is no limit.
	Bandwidth *Bandwidth `json:"bandwidth,omitempty"`
}

// AppliedTo selects Pods. A nil PodSelector selects all Pods of the selected Namespaces; a nil
// NamespaceSelector selects all Namespaces. Both nil select nothing.
type AppliedTo struct {
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// Bandwidth is a rate limit. Both are Kubernetes quantities: bits per second and bits.
type Bandwidth struct {
	Rate  string `json:"rate"`
	Burst string `json:"burst"`
}

// EgressStatus is what is realised.
type EgressStatus struct {
	// EgressNode is the node that holds EgressIP; written only by the node that holds or held it.
	EgressNode string `json:"egressNode"`
	// EgressIP is the effective source address.
	EgressIP string `json:"egressIP"`
	// Conditions has at most one entry of each type; only Egresses with a pool have any.
	Conditions []EgressCondition `json:"conditions,omitempty"`
}

// EgressConditionType names a condition of an Egress.
type EgressConditionType string

const (
	// IPAllocated says whether an address of the pool was given; written by the controller.
	IPAllocated EgressConditionType = "IPAllocated"
	// IPAssigned says whether a node holds the address; written by the nodes.
	IPAssigned EgressConditionType = "IPAssigned"
)

// The reasons of the conditions of an Egress.
const (
	ReasonAllocated       = "Allocated"
	ReasonAllocationError = "AllocationError"
	ReasonAssigned        = "Assigned"
	ReasonAssignmentError = "AssignmentError"
)

// EgressCondition is the state of one aspect of an Egress.
type EgressCondition struct {
	Type               EgressConditionType    `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime,omitempty"`
	Reason             string                 `json:"reason,omitempty"`
	Message            string                 `json:"message,omitempty"`
}

// EgressList is a list of Egresses.
type EgressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Egress `json:"items"`
}
