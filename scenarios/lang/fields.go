package lang

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// injectField is a field of a raw packet.
type injectField struct {
	name  string
	check func(value string) error
}

// injectFields are the fields that inject can set, named as OVS matches them (ovs-fields(7)). Of the
// two names that OVS has for some, both are taken.
var injectFields = []injectField{
	{"dl_src", checkMAC},
	{"dl_dst", checkMAC},
	{"dl_type", number(0, 0xffff)},
	{"dl_vlan", number(0, 4095)},
	{"dl_vlan_pcp", number(0, 7)},
	{"nw_src", address(4)},
	{"nw_dst", address(4)},
	{"ipv6_src", address(6)},
	{"ipv6_dst", address(6)},
	{"nw_proto", number(0, 255)},
	{"nw_ttl", number(0, 255)},
	{"nw_tos", number(0, 255)},
	{"tp_src", number(0, 65535)},
	{"tp_dst", number(0, 65535)},
	{"tcp_src", number(0, 65535)},
	{"tcp_dst", number(0, 65535)},
	{"udp_src", number(0, 65535)},
	{"udp_dst", number(0, 65535)},
	{"sctp_src", number(0, 65535)},
	{"sctp_dst", number(0, 65535)},
	{"tcp_flags", checkTCPFlags},
	{"icmp_type", number(0, 255)},
	{"icmp_code", number(0, 255)},
	{"icmpv6_type", number(0, 255)},
	{"icmpv6_code", number(0, 255)},
	{"arp_op", number(1, 2)},
	{"arp_spa", address(4)},
	{"arp_tpa", address(4)},
	{"arp_sha", checkMAC},
	{"arp_tha", checkMAC},
	{"nd_target", address(6)},
	{"nd_sll", checkMAC},
	{"nd_tll", checkMAC},
}

// InjectFields returns the names of the fields that inject can set.
func InjectFields() []string {
	names := make([]string, len(injectFields))
	for i, f := range injectFields {
		names[i] = f.name
	}
	return names
}

var macAddress = regexp.MustCompile(`^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$`)

func checkMAC(s string) error {
	if !macAddress.MatchString(s) {
		return fmt.Errorf("found %q, allowed: a MAC address as 0a:00:00:00:00:01%s", s, variableHint(s))
	}
	return nil
}

// number accepts decimal and 0x numbers, as OVS does.
func number(low, high uint64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 0, 32)
		if err != nil || n < low || n > high {
			return fmt.Errorf("found %q, allowed: %d to %d, decimal or 0x…%s", s, low, high, variableHint(s))
		}
		return nil
	}
}

func address(family int) func(string) error {
	return func(s string) error {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Is4() != (family == 4) || a.Zone() != "" {
			return fmt.Errorf("found %q, allowed: an IPv%d address%s", s, family, variableHint(s))
		}
		return nil
	}
}

var tcpFlags = regexp.MustCompile(`^(fin|syn|rst|psh|ack)(\|(fin|syn|rst|psh|ack))*$`)

func checkTCPFlags(s string) error {
	if !tcpFlags.MatchString(s) {
		return fmt.Errorf("found %q, allowed: fin, syn, rst, psh, ack, joined by |%s", s, variableHint(s))
	}
	return nil
}

// layers say which field belongs to which sort of packet: the Ethernet type and the protocol above it, where the
// field's name says them.
var layers = []struct {
	prefix string
	eth    uint64
	proto  uint64
}{
	{"arp_", 0x0806, 0},
	{"nw_src", 0x0800, 0},
	{"nw_dst", 0x0800, 0},
	{"ipv6_", 0x86dd, 0},
	{"nd_", 0x86dd, 58},
	{"icmpv6_", 0x86dd, 58},
	{"icmp_", 0x0800, 1},
	{"tcp_", 0, 6},
	{"udp_", 0, 17},
	{"sctp_", 0, 132},
	{"tp_", 0, 0},
}

// contradiction says which two fields cannot be in one packet, "" if all can.
func contradiction(fields []KeyValue) string {
	var eth, proto uint64
	var ethBy, protoBy string
	ip := "" // a field that only an IP packet has
	v6 := slices.ContainsFunc(fields, func(f KeyValue) bool {
		return strings.HasPrefix(f.Key, "ipv6_") || strings.HasPrefix(f.Key, "nd_") || strings.HasPrefix(f.Key, "icmpv6_")
	})
	for _, f := range fields {
		e, p := uint64(0), uint64(0)
		switch f.Key {
		case "dl_type":
			e, _ = strconv.ParseUint(f.Value, 0, 32)
		case "nw_proto":
			p, _ = strconv.ParseUint(f.Value, 0, 32)
			ip = f.Key
		case "nw_ttl", "nw_tos":
			ip = f.Key
		default:
			for _, l := range layers {
				if strings.HasPrefix(f.Key, l.prefix) {
					e, p = l.eth, l.proto
					if l.prefix == "icmp_" && v6 {
						e, p = 0x86dd, 58 // Open vSwitch prints icmp_type for ICMPv6, too
					}
					if e != 0x0806 {
						ip = f.Key
					}
				}
			}
		}
		text := f.Key + "=" + f.Value
		if e != 0 {
			if eth != 0 && eth != e {
				return fmt.Sprintf("found %s and %s, allowed: fields of one sort of packet (dl_type 0x%04x or 0x%04x)", ethBy, text, eth, e)
			}
			eth, ethBy = e, text
		}
		if p != 0 {
			if proto != 0 && proto != p {
				return fmt.Sprintf("found %s and %s, allowed: fields of one protocol (%d or %d)", protoBy, text, proto, p)
			}
			proto, protoBy = p, text
		}
	}
	if ip != "" && eth != 0 && eth != 0x0800 && eth != 0x86dd {
		return fmt.Sprintf("found %s and %s, allowed: fields of one sort of packet (dl_type 0x%04x is not IP)", ethBy, ip, eth)
	}
	return ""
}
