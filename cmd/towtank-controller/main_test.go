package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/deploy"
	"towtank/e2e/apiserver"
	"towtank/e2e/apiserver/apitest"
	"towtank/sim"
	"towtank/sim/kube"
)

const objects = `
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: pool}
spec: {ipRanges: [{start: 172.18.0.50, end: 172.18.0.52}], nodeSelector: {}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: a}
spec: {appliedTo: {podSelector: {}}, externalIPPool: pool}
`

// The program as a Deployment runs it, from its command line to the address of an Egress, with a Lease.
func TestProgram(t *testing.T) {
	s, url := apitest.Serve(t, apiserver.Config{})
	var err error
	s.Do(func(c *kube.Cluster) { _, err = c.Apply([]byte(objects), "objects.yaml") })
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config")
	if err := s.WriteKubeconfig(config, sim.ControllerName, url); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		c := command()
		c.SetArgs([]string{"--kubeconfig", config, "--leader-elect-namespace", "kube-system"})
		ended <- c.ExecuteContext(ctx)
	}()
	gomega.NewWithT(t).Eventually(func() (ip string) {
		s.Do(func(c *kube.Cluster) {
			if o, err := c.Get(kube.KindEgress, "", "a"); err == nil {
				ip = o.(*v1beta1.Egress).Spec.EgressIP
			}
		})
		return ip
	}, "15s", "10ms").Should(gomega.Equal("172.18.0.50"), "the Egress's address")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The Deployment runs the program with flags that it has.
func TestManifestFlags(t *testing.T) {
	c, err := kube.New(kube.Config{Now: time.Now, IPv4: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(deploy.Controller, "controller.yaml"); err != nil {
		t.Fatal(err)
	}
	o, err := c.Get(kube.KindDeployment, "kube-system", "towtank-controller")
	if err != nil {
		t.Fatal(err)
	}
	controller := o.(*appsv1.Deployment).Spec.Template.Spec.Containers[0]
	if len(controller.Command) != 1 || controller.Command[0] != "towtank-controller" || len(controller.Args) == 0 {
		t.Errorf("the container runs %v %v", controller.Command, controller.Args)
	}
	if err := command().ParseFlags(controller.Args); err != nil {
		t.Error(err)
	}
}

// What is wrong on the command line is named.
func TestBadFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"allowed: local, egressgroup": {"--membership", "remote"},
		"--leader-elect-namespace":    {"--leader-elect-namespace", ""},
		"unknown command":             {"now"},
		"API server":                  {"--kubeconfig", "/nowhere"},
	} {
		c := command()
		c.SetArgs(args)
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
