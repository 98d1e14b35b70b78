//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"towtank/deploy"
	"towtank/sim/kube"
)

// The DaemonSet runs the program with flags that it has.
func TestManifestFlags(t *testing.T) {
	c, err := kube.New(kube.Config{Now: time.Now, IPv4: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(deploy.Agent, "agent.yaml"); err != nil {
		t.Fatal(err)
	}
	o, err := c.Get(kube.KindDaemonSet, "kube-system", "towtank-agent")
	if err != nil {
		t.Fatal(err)
	}
	agent := o.(*appsv1.DaemonSet).Spec.Template.Spec.Containers[0]
	if len(agent.Command) != 1 || agent.Command[0] != "towtank-agent" || len(agent.Args) == 0 {
		t.Errorf("the container runs %v %v", agent.Command, agent.Args)
	}
	if err := command().ParseFlags(agent.Args); err != nil {
		t.Error(err)
	}
}

// What is wrong on the command line is named.
func TestBadFlags(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for want, args := range map[string][]string{
		"--node":          {"--node", ""},
		"1 to 65535":      {"--node", "n1", "--gossip-port", "0"},
		"settings":        {"--node", "n1", "--settings", "/nowhere"},
		"unknown command": {"now"},
		"nobody.sock":     {"status", "--status-socket", t.TempDir() + "/nobody.sock"},
	} {
		c := command()
		c.SetArgs(args)
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
