package lang

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Options are the settings of the cluster and its agents.
type Options struct {
	// IP is v4, v6 or dual.
	IP string
	// Traffic is encap, noEncap or hybrid; Tunnel is geneve or vxlan.
	Traffic, Tunnel string
	// ProxyAll serves node ports and external addresses, ProxyLoadBalancerIPs load-balancer addresses.
	ProxyAll, ProxyLoadBalancerIPs bool
	// MaxEgressIPsPerNode is 0 to 255.
	MaxEgressIPsPerNode int
	// SkipServices are Services as NS/NAME that the agents leave alone.
	SkipServices []string
	// LoadBalancerMode is nat or dsr.
	LoadBalancerMode string
	// NodePortAddresses are the networks whose node addresses serve node ports; empty: all.
	NodePortAddresses []netip.Prefix
	// PodCIDRSize is the length of the nodes' IPv4 Pod networks, 24 to 30.
	PodCIDRSize int
	// ServiceCIDRs has one network of each family.
	ServiceCIDRs []netip.Prefix
	// Membership is local or egressgroup.
	Membership string
	// MemberTimeout is how long gossip takes to give a member up, MemberRejoin how often lost ones
	// are tried, AuditEvery how often the whole state is compared.
	MemberTimeout, MemberRejoin, AuditEvery time.Duration
}

// DefaultOptions returns the options of a file that sets none.
func DefaultOptions() Options {
	return Options{
		IP: "v4", Traffic: "encap", Tunnel: "geneve", ProxyAll: true, ProxyLoadBalancerIPs: true,
		MaxEgressIPsPerNode: 255, LoadBalancerMode: "nat", PodCIDRSize: 24, Membership: "local",
		ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
		MemberTimeout: 15 * time.Second, MemberRejoin: 60 * time.Second, AuditEvery: 60 * time.Second,
	}
}

// IPv4 reports whether the cluster has IPv4.
func (o Options) IPv4() bool { return o.IP != "v6" }

// IPv6 reports whether the cluster has IPv6.
func (o Options) IPv6() bool { return o.IP != "v4" }

// Option is `option KEY=VALUE…`.
type Option struct{ Settings []Setting }

// Setting is one KEY=VALUE; see Options for the keys.
type Setting struct{ Key, Value string }

// optionKeys are the keys in the order of the documentation.
var optionKeys = []string{
	"ip", "traffic", "tunnel", "proxyAll", "proxyLoadBalancerIPs", "maxEgressIPsPerNode", "skipServices", "loadBalancerMode",
	"nodePortAddresses", "podCIDRSize", "serviceCIDR", "membership", "memberTimeout", "memberRejoin", "auditEvery",
}

// set applies one setting.
func (o *Options) set(key, value string) (err error) {
	switch key {
	case "ip":
		o.IP, err = oneOf(value, "v4", "v6", "dual")
	case "traffic":
		o.Traffic, err = oneOf(value, "encap", "noEncap", "hybrid")
	case "tunnel":
		o.Tunnel, err = oneOf(value, "geneve", "vxlan")
	case "proxyAll":
		o.ProxyAll, err = parseBool(value)
	case "proxyLoadBalancerIPs":
		o.ProxyLoadBalancerIPs, err = parseBool(value)
	case "maxEgressIPsPerNode":
		o.MaxEgressIPsPerNode, err = parseInt(value, 0, 255)
	case "skipServices":
		o.SkipServices, err = splitList(value, func(s string) (string, error) {
			_, _, err := parseNamespaced(s)
			return s, err
		})
	case "loadBalancerMode":
		o.LoadBalancerMode, err = oneOf(value, "nat", "dsr")
	case "nodePortAddresses":
		o.NodePortAddresses, err = splitList(value, parsePrefix)
	case "podCIDRSize":
		o.PodCIDRSize, err = parseInt(value, 24, 30)
	case "serviceCIDR":
		o.ServiceCIDRs, err = splitList(value, parsePrefix)
		if c := o.ServiceCIDRs; err == nil && (len(c) > 2 || len(c) == 2 && c[0].Addr().Is4() == c[1].Addr().Is4()) {
			err = fmt.Errorf("found %q, allowed: one network, or one of each family", value)
		}
	case "membership":
		o.Membership, err = oneOf(value, "local", "egressgroup")
	case "memberTimeout":
		o.MemberTimeout, err = parseDuration(value, time.Second)
	case "memberRejoin":
		o.MemberRejoin, err = parseDuration(value, time.Second)
	case "auditEvery":
		o.AuditEvery, err = parseDuration(value, time.Second)
	default:
		err = fmt.Errorf("unknown option %q%s allowed: %s", key, hint(key, optionKeys), strings.Join(optionKeys, ", "))
	}
	return err
}

// canonical returns the value as it is printed.
func canonical(key, value string) string {
	switch key {
	case "memberTimeout", "memberRejoin", "auditEvery":
		if d, err := time.ParseDuration(value); err == nil {
			return formatDuration(d)
		}
	}
	return value
}

// Command implements Step.
func (Option) Command() string { return "option" }

// String implements Step.
func (o Option) String() string {
	var p printer
	p.raw("option")
	for _, s := range o.Settings {
		p.opt(s.Key, canonical(s.Key, s.Value))
	}
	return p.String()
}

func (Option) names(*nameVisitor) {}

func parseOption(a *args) Step {
	var o Option
	var trial Options
	if !a.left() {
		a.next("KEY=VALUE")
	}
	for a.left() {
		key, op, value := keyOpValue(a.words[a.pos])
		a.pos++
		err := error(nil)
		switch {
		case op != "=" || value == "":
			err = fmt.Errorf("found %q, allowed: KEY=VALUE with KEY one of %s", key, strings.Join(optionKeys, ", "))
		case slices.ContainsFunc(o.Settings, func(s Setting) bool { return s.Key == key }):
			err = fmt.Errorf("%s is given twice", key)
		default:
			if err = trial.set(key, value); err != nil && slices.Contains(optionKeys, key) {
				err = fmt.Errorf("%s: %w", key, err)
			}
		}
		if err != nil {
			a.failf("%v", err)
		}
		o.Settings = append(o.Settings, Setting{key, canonical(key, value)})
	}
	return o
}
