// Package deploy has the manifests that a cluster is given, for tests and tools.
package deploy

import _ "embed" // of the files

var (
	// CRDs is crds.yaml: the custom resource definitions.
	//go:embed crds.yaml
	CRDs []byte
	// OVS is ovs.yaml: the DaemonSet of Open vSwitch.
	//go:embed ovs.yaml
	OVS []byte
	// Agent is agent.yaml: the DaemonSet of the agent, its rights and settings.
	//go:embed agent.yaml
	Agent []byte
	// Controller is controller.yaml: the Deployment of the controller and its rights.
	//go:embed controller.yaml
	Controller []byte
)

// The ServiceAccounts of the manifests.
const (
	AgentAccount      = "kube-system/towtank-agent"
	ControllerAccount = "kube-system/towtank-controller"
)
