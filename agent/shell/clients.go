package shell

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/apis/crd/v1beta1/clientset"
)

// Requests a second, and at once, that a process sends to the API server: as a kubelet's. With client-go's defaults (5
// and 10) the statuses of many Egresses would wait.
const (
	apiQPS   = 50
	apiBurst = 100
)

// Clients are a process's ways to the API server.
type Clients struct {
	Config   *rest.Config
	Kube     kubernetes.Interface
	CRD      clientset.Interface
	Recorder record.EventRecorder // of Kubernetes Events
	events   record.EventBroadcaster
}

// Connect makes the clients of a component that runs on a host, from a kubeconfig file or, without one, from the
// Pod's service account. It does not ask the API server: that may come later. Close ends them.
func Connect(kubeconfig, component, host string) (*Clients, error) {
	c := &Clients{}
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	c.Config.QPS, c.Config.Burst = apiQPS, apiBurst
	if c.Kube, err = kubernetes.NewForConfig(c.Config); err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	if c.CRD, err = clientset.NewForConfig(c.Config); err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	if err := v1beta1.AddToScheme(scheme.Scheme); err != nil {
		return nil, err
	}
	c.events = record.NewBroadcaster()
	c.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.Kube.CoreV1().Events("")})
	c.Recorder = c.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: host})
	return c, nil
}

// Close ends the recording of Events.
func (c *Clients) Close() { c.events.Shutdown() }
