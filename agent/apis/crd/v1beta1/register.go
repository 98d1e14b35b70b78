package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of the types.
const GroupName = "crd.antrea.io"

var (
	// SchemeGroupVersion is the group and version of the types.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1beta1"}
	// EgressResource is the REST resource of Egress.
	EgressResource = SchemeGroupVersion.WithResource("egresses")
	// EgressKind is the kind of Egress.
	EgressKind = SchemeGroupVersion.WithKind("Egress")
	// ExternalIPPoolResource is the REST resource of ExternalIPPool.
	ExternalIPPoolResource = SchemeGroupVersion.WithResource("externalippools")
	// ExternalIPPoolKind is the kind of ExternalIPPool.
	ExternalIPPoolKind = SchemeGroupVersion.WithKind("ExternalIPPool")
	// EgressGroupResource is the REST resource of EgressGroup.
	EgressGroupResource = SchemeGroupVersion.WithResource("egressgroups")
	// EgressGroupKind is the kind of EgressGroup.
	EgressGroupKind = SchemeGroupVersion.WithKind("EgressGroup")
)

// SchemeBuilder collects the functions that add the types to a scheme.
var SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme adds the types to a scheme.
var AddToScheme = SchemeBuilder.AddToScheme

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&Egress{}, &EgressList{},
		&ExternalIPPool{}, &ExternalIPPoolList{},
		&EgressGroup{}, &EgressGroupList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
