// Command towtank-controller gives Egresses their addresses from ExternalIPPools, as a Deployment runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"towtank/agent/config"
	"towtank/agent/shell"
	"towtank/agent/shell/controller"
)

// flags are what the command line says.
type flags struct {
	kubeconfig, namespace, socket string
	elect                         bool
	membership, metrics           string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "towtank-controller:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "towtank-controller",
		Short: "Give Egresses their addresses from ExternalIPPools",
		Long: "Give Egresses their addresses from ExternalIPPools. Several may run: one leads, the others wait. One that does not\n" +
			"lead any more ends with exit status 1, to be started anew.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), f) },
	}
	p := c.Flags()
	p.StringVar(&f.metrics, "metrics-address", "", "TCP address of /metrics, /healthz and /readyz, such as 127.0.0.1:10353; none: nowhere")
	p.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; none: the Pod's service account")
	p.BoolVar(&f.elect, "leader-elect", true, "do nothing until this controller holds the Lease")
	p.StringVar(&f.namespace, "leader-elect-namespace", namespace(), "Namespace of the Lease; by default $POD_NAMESPACE")
	p.StringVar(&f.membership, "membership", config.MembershipLocal, "who finds the Pods of an Egress, as in the agents' settings: local or egressgroup (this controller)")
	p.StringVar(&f.socket, "status-socket", "", "socket on which it answers questions (as towtank-agent status asks); none: nowhere")
	return c
}

func namespace() string {
	if ns := os.Getenv("POD_NAMESPACE"); ns != "" {
		return ns
	}
	return "kube-system"
}

func run(ctx context.Context, f flags) error {
	if f.elect && f.namespace == "" {
		return errors.New("--leader-elect-namespace: no name")
	}
	if f.membership != config.MembershipLocal && f.membership != config.MembershipGroups {
		return fmt.Errorf("--membership: found %q, allowed: %s, %s", f.membership, config.MembershipLocal, config.MembershipGroups)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this machine: %w", err)
	}
	api, err := shell.Connect(f.kubeconfig, "towtank-controller", host)
	if err != nil {
		return err
	}
	defer api.Close()
	return controller.Run(ctx, controller.Options{
		Kube: api.Kube, CRD: api.CRD, Recorder: api.Recorder, Log: klog.Background(),
		Groups: f.membership == config.MembershipGroups, Elect: f.elect, Identity: host + "_" + uuid.NewString(), Namespace: f.namespace, StatusSocket: f.socket, MetricsAddress: f.metrics,
	})
}
