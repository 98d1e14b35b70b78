// Package v1beta1 has the Go types of the custom resources that the agent reads: Egress and
// ExternalIPPool of the API group crd.antrea.io. Group, version, kinds and field names on the wire
// are Antrea's, so that manifests written for Antrea work unchanged; the types are our own.
//
// Both kinds are cluster-scoped.
package v1beta1
