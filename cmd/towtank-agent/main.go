//go:build linux

// Command towtank-agent is the agent of a node, as a DaemonSet runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"towtank/agent"
	"towtank/agent/shell"
	"towtank/agent/shell/daemon"
	"towtank/e2e/faults"
)

// flags are what the command line says.
type flags struct {
	node, settings, kubeconfig  string
	runDir, bridge, socket      string
	statusSocket, metrics       string
	stateDir, addressDir, keyIn string
	gossipPort                  uint16
	faults                      bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "towtank-agent:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "towtank-agent",
		Short: "Wire the Pods, Services and Egresses of one node with Open vSwitch",
		Long: "The agent of one node. It needs the bridge to exist (ovs-vsctl --may-exist add-br br-int) and iptables, ipset,\n" +
			"nft and ethtool in its PATH. When it ends, what is on the node stays and goes on working.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), f) },
	}
	p := c.Flags()
	p.StringVar(&f.node, "node", os.Getenv("NODE_NAME"), "name of the Node; by default $NODE_NAME")
	p.StringVar(&f.settings, "settings", "", "YAML file of settings (docs/agent.md); none: defaults")
	p.StringVar(&f.metrics, "metrics-address", "", "TCP address of /metrics, /healthz and /readyz, such as 127.0.0.1:10352; none: nowhere")
	p.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; none: the Pod's service account")
	p.StringVar(&f.runDir, "ovs-run-dir", "/run/openvswitch", "directory of Open vSwitch's sockets")
	p.StringVar(&f.bridge, "bridge", "br-int", "bridge of the Pods")
	p.StringVar(&f.socket, "cni-socket", shell.DefaultSocket, "socket that the CNI plugin calls")
	p.StringVar(&f.statusSocket, "status-socket", shell.DefaultStatusSocket, "socket on which the agent answers questions (towtank-agent status); empty: none")
	p.StringVar(&f.stateDir, "state-dir", "/run/towtank", "directory for what is of no use after a boot")
	p.StringVar(&f.addressDir, "address-dir", "/var/lib/towtank/addresses", "directory of the addresses given to Pods")
	p.StringVar(&f.keyIn, "gossip-key", "", "file with the key of the membership: 16, 24 or 32 bytes; none: not encrypted")
	p.Uint16Var(&f.gossipPort, "gossip-port", 10351, "TCP and UDP port of the membership, on the node's InternalIP")
	p.BoolVar(&f.faults, "faults", false, "ask the API server of a scenario before each effect whether it is to fail (e2e/faults)")
	if err := p.MarkHidden("faults"); err != nil {
		panic(err) // never: the only error is that there is no such flag, and it was made two lines above
	}
	c.AddCommand(inspections()...)
	c.CompletionOptions.DisableDefaultCmd = true
	return c
}

func run(ctx context.Context, f flags) error {
	if f.node == "" {
		return errors.New("--node: no name, and NODE_NAME is not set")
	}
	if f.gossipPort == 0 {
		return errors.New("--gossip-port 0: allowed are 1 to 65535")
	}
	settings, err := daemon.ReadSettings(f.settings)
	if err != nil {
		return err
	}
	var key []byte
	if f.keyIn != "" {
		if key, err = os.ReadFile(f.keyIn); err != nil {
			return fmt.Errorf("--gossip-key: %w", err)
		}
		if n := len(key); n != 16 && n != 24 && n != 32 {
			return fmt.Errorf("--gossip-key %s: %d bytes: allowed are 16, 24 or 32", f.keyIn, n)
		}
	}
	api, err := shell.Connect(f.kubeconfig, "towtank-agent", f.node)
	if err != nil {
		return err
	}
	defer api.Close()
	log := klog.Background()
	var wrap func(context.Context, *shell.Queue, agent.Seams, func(any)) (agent.Seams, func(any))
	if f.faults {
		i, err := faults.New(api.Config, log)
		if err != nil {
			return err
		}
		wrap = i.Wrap
	}
	return daemon.Run(ctx, daemon.Options{
		Node: f.node, Settings: settings, Bridge: f.bridge, Database: filepath.Join(f.runDir, "db.sock"),
		OpenFlow: filepath.Join(f.runDir, f.bridge+".mgmt"), Control: filepath.Join(f.runDir, "ovs-vswitchd.pid"), Socket: f.socket, StatusSocket: f.statusSocket, MetricsAddress: f.metrics, StateDir: f.stateDir, AddressDir: f.addressDir,
		Wrap: wrap, GossipPort: f.gossipPort, GossipKey: key, Kube: api.Kube, CRD: api.CRD,
		Recorder: api.Recorder, Log: log,
		Ready: func() { log.Info("Ready for calls", "node", f.node, "socket", f.socket) },
	})
}
