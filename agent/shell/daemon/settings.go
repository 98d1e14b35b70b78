package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"sigs.k8s.io/yaml"

	"towtank/agent/config"
)

// Settings is the configuration file, the same for all nodes. What is left out has the default of
// config.Config.
type Settings struct {
	ServiceCIDRs         []netip.Prefix `json:"serviceCIDRs,omitempty"`
	TrafficMode          string         `json:"trafficMode,omitempty"` // encap, noEncap or hybrid
	TunnelType           string         `json:"tunnelType,omitempty"`  // geneve or vxlan
	ProxyAll             bool           `json:"proxyAll,omitempty"`
	ProxyLoadBalancerIPs *bool          `json:"proxyLoadBalancerIPs,omitempty"` // true if left out
	SkipServices         []string       `json:"skipServices,omitempty"`         // namespace/name
	NodePortAddresses    []netip.Prefix `json:"nodePortAddresses,omitempty"`
	LoadBalancerMode     string         `json:"loadBalancerMode,omitempty"` // nat or dsr
	MaxEgressIPsPerNode  *int           `json:"maxEgressIPsPerNode,omitempty"`
	ExceptCIDRs          []netip.Prefix `json:"exceptCIDRs,omitempty"`
	MTU                  int            `json:"mtu,omitempty"` // of Pods, bytes
	AuditEvery           string         `json:"auditEvery,omitempty"`
	Membership           string         `json:"membership,omitempty"` // local or egressgroup: who finds the Pods of an Egress
	// MemberTimeout is how long after its last word a node is taken for dead, MemberRejoin how often nodes
	// that are missing are tried again.
	MemberTimeout string `json:"memberTimeout,omitempty"`
	MemberRejoin  string `json:"memberRejoin,omitempty"`
	// LeaveOnStop has an agent that is told to end (SIGTERM) leave the membership: its Egress IPs move at once. Without
	// it an agent that is back within MemberTimeout, as in a rolling update, keeps them.
	LeaveOnStop bool `json:"leaveOnStop,omitempty"`
}

// ReadSettings reads the file; a field that it does not know is an error. "" is an empty file.
func ReadSettings(path string) (*Settings, error) {
	s := &Settings{}
	if path == "" {
		return s, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, s); err != nil {
		return nil, fmt.Errorf("settings: %s: %w", path, err)
	}
	return s, nil
}

// validate names the first setting that is not allowed.
func (s *Settings) validate() error {
	c, err := s.config()
	if err != nil {
		return err
	}
	c.Defaults()
	if err := c.ValidateSettings(); err != nil {
		return err
	}
	_, _, err = s.members()
	return err
}

// config returns a node's configuration, without what only the node knows.
func (s *Settings) config() (*config.Config, error) {
	c := &config.Config{
		ServiceCIDRs: s.ServiceCIDRs, Traffic: config.Traffic(s.TrafficMode), Tunnel: s.TunnelType, ProxyAll: s.ProxyAll,
		ProxyLoadBalancerIPs: s.ProxyLoadBalancerIPs == nil || *s.ProxyLoadBalancerIPs, SkipServices: s.SkipServices,
		NodePortAddresses: s.NodePortAddresses, LoadBalancerMode: s.LoadBalancerMode, MaxEgressIPsPerNode: 255,
		ExceptCIDRs: s.ExceptCIDRs, MTU: s.MTU, Membership: s.Membership,
	}
	if s.MaxEgressIPsPerNode != nil {
		c.MaxEgressIPsPerNode = *s.MaxEgressIPsPerNode
	}
	if s.MTU != 0 && (s.MTU < 1280 || s.MTU > 65535) {
		return nil, fmt.Errorf("settings: mtu %d: allowed are 1280 to 65535", s.MTU)
	}
	var err error
	c.AuditEvery, err = duration("auditEvery", s.AuditEvery)
	return c, err
}

// duration reads a duration of at least a second; "" is 0.
func duration(name, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < time.Second {
		err = errors.New("allowed is 1s and more")
	}
	if err != nil {
		return 0, fmt.Errorf("settings: %s %q: %w", name, text, err)
	}
	return d, nil
}

// members returns how long a node may be silent, and how often missing ones are tried; 0 is the default.
func (s *Settings) members() (timeout, rejoin time.Duration, err error) {
	if timeout, err = duration("memberTimeout", s.MemberTimeout); err != nil {
		return 0, 0, err
	}
	rejoin, err = duration("memberRejoin", s.MemberRejoin)
	return timeout, rejoin, err
}
