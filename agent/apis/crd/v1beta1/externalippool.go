package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ExternalIPPool is a set of addresses for Egresses, and the nodes that may hold them.
type ExternalIPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ExternalIPPoolSpec   `json:"spec"`
	Status ExternalIPPoolStatus `json:"status,omitempty"`
}

// ExternalIPPoolSpec is what the user wants.
type ExternalIPPoolSpec struct {
	// IPRanges are the addresses; ranges don't overlap, and are never removed.
	IPRanges []IPRange `json:"ipRanges"`
	// SubnetInfo describes the subnet of the addresses if it is not the nodes' own; all ranges are
	// inside it.
	SubnetInfo *SubnetInfo `json:"subnetInfo,omitempty"`
	// NodeSelector selects the nodes that may hold addresses; an empty one selects all.
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
}

// IPRange is either a CIDR or the addresses from Start to End, both included. Of a CIDR the first
// address is not used, and for IPv4 neither is the last.
type IPRange struct {
	CIDR  string `json:"cidr,omitempty"`
	Start string `json:"start,omitempty"`
	End   string `json:"end,omitempty"`
}

// SubnetInfo describes a subnet that the nodes reach over their transport interface.
type SubnetInfo struct {
	// Gateway is the address of the subnet's router.
	Gateway string `json:"gateway"`
	// PrefixLength is 1..32 (IPv4) or 1..128 (IPv6).
	PrefixLength int32 `json:"prefixLength"`
	// VLAN is the subnet's VLAN id, 0 (untagged) to 4094.
	VLAN int32 `json:"vlan,omitempty"`
}

// ExternalIPPoolStatus is what is observed.
type ExternalIPPoolStatus struct {
	Usage ExternalIPPoolUsage `json:"usage,omitempty"`
}

// ExternalIPPoolUsage counts the addresses of a pool.
type ExternalIPPoolUsage struct {
	Total int `json:"total"`
	Used  int `json:"used"`
}

// ExternalIPPoolList is a list of ExternalIPPools.
type ExternalIPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExternalIPPool `json:"items"`
}
