//go:build linux

package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"towtank/agent/config"
	"towtank/e2e/peer"
	"towtank/e2e/vswitchd"
	"towtank/sim"
	"towtank/sim/kube"
)

// Devices of a node. The node's addresses are on the local port of a bridge that the physical device is a port
// of, because tunnels of the userspace datapath can end only there; that bridge has the name that the uplink has
// in scenarios.
const (
	uplink   = sim.Uplink
	physical = "phy0"
	bridge   = sim.Bridge
)

// machine is one node: a namespace, an Open vSwitch, a process that serves and dials, and an agent.
type machine struct {
	c        *cluster
	name     string
	podCIDRs []netip.Prefix
	dir      string
	last     chan struct{} // closed when the last that asked for an address is done
	adding   sync.RWMutex  // written while an ADD asks for a certain address

	mu     sync.Mutex // of what follows
	v4, v6 netip.Addr
	space  *space
	ovs    *vswitchd.Server
	agent  *process
	api    net.Listener // of the API server, in the namespace
	up     bool
	paused bool
	hand   bool // see byHand
	// foreign is what is on the node that is not ours, nil if that is not known; see foreign.go.
	foreign []string
	ledger  ledger
}

// Name implements scenarios.Node.
func (m *machine) Name() string { return m.name }

// Up implements scenarios.Node.
func (m *machine) Up() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.up
}

// Transport implements scenarios.Node.
func (m *machine) Transport(v6 bool) netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v6 {
		return m.v6
	}
	return m.v4
}

// registration is the node as its kubelet registers it.
func (m *machine) registration() kube.NodeConfig {
	return kube.NodeConfig{Name: m.name, IPs: m.addresses(), PodCIDRs: m.podCIDRs}
}

func (m *machine) addresses() []netip.Addr {
	var out []netip.Addr
	for _, v6 := range []bool{false, true} {
		if a := m.Transport(v6); a.IsValid() {
			out = append(out, a)
		}
	}
	return out
}

// Gateway implements scenarios.Node.
func (m *machine) Gateway(v6 bool) netip.Addr {
	for _, c := range m.podCIDRs {
		if c.Addr().Is6() == v6 {
			return config.GatewayOf(c)
		}
	}
	return netip.Addr{}
}

// HasAddress implements scenarios.Node.
func (m *machine) HasAddress(ip netip.Addr) bool {
	s := m.netns()
	if s == nil {
		return false
	}
	out, err := s.run("ip", "-o", "addr", "show", "to", ip.String())
	return err == nil && strings.TrimSpace(out) != ""
}

// netns returns the node's namespace, nil while it is off.
func (m *machine) netns() *space {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.up {
		return nil
	}
	return m.space
}

// boot starts the machine: kernel, switch, and the processes that serve.
func (m *machine) boot() error {
	m.forgetForeign()
	s, err := newSpace(m.c.prefix + m.name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.space = s
	m.mu.Unlock()
	if err := m.c.wire.watch(m.name, s); err != nil {
		return err
	}
	mac := macOf(m.name)
	if err := m.c.fabric.plug(m.name, s, physical, mac); err != nil {
		return err
	}
	err = s.do(func() error {
		return errors.Join(
			// The kernel must not answer what Open vSwitch takes from the device.
			command("table netdev uplink {\n chain ingress {\n type filter hook ingress device \""+physical+"\" priority 0; policy drop;\n }\n}\n", "nft", "-f", "-"),
			command("", "ip", "link", "set", physical, "addrgenmode", "none", "up"), m.startSwitch(mac),
		)
	})
	if err != nil {
		return fmt.Errorf("node %s: %w", m.name, err)
	}
	for _, a := range m.addresses() {
		if _, err := s.run("ip", "addr", "add", netip.PrefixFrom(a, transportBits(a)).String(), "dev", uplink); err != nil {
			return err
		}
	}
	if _, err := s.run("ip", "link", "set", uplink, "up"); err != nil {
		return err
	}
	if err := s.startPeer(m.c.programs.peer); err != nil {
		return err
	}
	m.mu.Lock()
	m.up = true
	m.mu.Unlock()
	return m.listen()
}

// startSwitch starts Open vSwitch, for the first time with two bridges. It runs inside.
func (m *machine) startSwitch(mac string) error {
	if m.ovs != nil {
		return m.ovs.PowerOn()
	}
	server, err := vswitchd.StartReal()
	if err != nil {
		return err
	}
	m.ovs = server
	err = command("", "ovs-vsctl", "--db=unix:"+server.Database(),
		"add-br", uplink, "--", "set", "bridge", uplink, "datapath_type=netdev", "fail_mode=standalone", "other_config:hwaddr="+mac, "--",
		"add-port", uplink, physical, "--",
		"add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow15")
	return errors.Join(err, server.KnowBridge(uplink), server.KnowBridge(bridge))
}

// listen has the processes of the node serve, under the node's own name.
func (m *machine) listen() error {
	var errs []error
	for _, proto := range []string{"tcp", "udp"} {
		errs = append(errs, m.space.peer.Serve(peer.Port{Proto: proto, Port: defaultPort, Name: "node/" + m.name}))
	}
	return errors.Join(errs...)
}

// powerOff ends everything on the machine at once. The database, the files of the addresses and the namespace's
// name are there when it boots.
func (m *machine) powerOff() error {
	m.mu.Lock()
	agent, s, api := m.agent, m.space, m.api
	m.up, m.agent, m.paused, m.api = false, nil, false, nil
	m.mu.Unlock()
	if api != nil {
		_ = api.Close()
	}
	if agent != nil {
		agent.kill()
	}
	var err error
	if m.ovs != nil {
		err = m.ovs.PowerOff()
	}
	if s != nil {
		s.close()
	}
	return errors.Join(err, os.RemoveAll(m.stateDir()))
}

func (m *machine) stateDir() string { return filepath.Join(m.dir, "run") }

func (m *machine) addressDir() string { return filepath.Join(m.dir, "addresses") }

// socket is where the CNI plugin calls the agent.
func (m *machine) socket() string { return filepath.Join(m.dir, "cni.sock") }

// close ends everything for good.
func (m *machine) close() {
	if m.agent != nil {
		m.agent.kill()
	}
	if m.ovs != nil {
		m.ovs.Close()
	}
	if m.space != nil {
		m.space.close()
	}
}

// defaultPort is what Pods and machines serve if nothing is said.
const defaultPort = 8080

// Lengths of the nodes' subnets.
const (
	transportBits4 = 16
	transportBits6 = 64
)

func transportBits(a netip.Addr) int {
	if a.Is6() {
		return transportBits6
	}
	return transportBits4
}

// macOf returns the address of a machine on the fabric, made from its name.
func macOf(name string) string {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", byte(h>>8), byte(h>>16), byte(h>>24), byte(h>>32), byte(h>>40))
}
