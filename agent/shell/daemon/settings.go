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
	if s.AuditEvery != "" {
		d, err := time.ParseDuration(s.AuditEvery)
		if err == nil && d < time.Second {
			err = errors.New("allowed is 1s and more")
		}
		if err != nil {
			return nil, fmt.Errorf("settings: auditEvery %q: %w", s.AuditEvery, err)
		}
		c.AuditEvery = d
	}
	return c, nil
}
