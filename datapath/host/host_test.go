package host

import (
	"strings"
	"testing"

	"towtank/datapath"
)

// Every canonical text parses to an object that prints the same text, and spellings that the tools
// accept are normalised to it.
func TestTextsParseBack(t *testing.T) {
	for _, c := range []struct {
		kind     datapath.Kind
		in, want string // want "": in is canonical
	}{
		{datapath.KindLink, "dev web-1a2b3c type veth mtu 1450 up alias towtank:c1/eth0 guard", ""},
		{datapath.KindLink, "dev tt-ext.10 type vlan id 10 link eth0 mtu 1500 address 0a:00:00:00:00:01 down alias towtank:host", ""},
		{datapath.KindLink, "dev gw0 mtu 1450 type device alias towtank:host", "dev gw0 type device mtu 1450 up alias towtank:host"},
		{datapath.KindAddress, "10.10.1.1/24 dev gw0 proto 116", ""},
		{datapath.KindAddress, "fd00:10:1::1 dev gw0 noprefixroute", "fd00:10:1::1/128 dev gw0 proto 116 noprefixroute"},
		{datapath.KindAddress, "fd00:18::32/128 dev br-phy proto 116 preferred_lft 0", ""},
		{datapath.KindNeighbour, "169.254.0.253 dev gw0 lladdr aa:bb:cc:dd:ee:ff nud permanent proto 116", ""},
		{datapath.KindNeighbour, "proxy fd00:18::32 dev eth0", "proxy fd00:18::32 dev eth0 proto 116"},
		{datapath.KindRoute, "10.10.2.0/24 via 10.10.2.1 dev gw0 proto 116 onlink", ""},
		{datapath.KindRoute, "10.10.2.9/24 via 10.10.2.1 dev gw0 onlink", "10.10.2.0/24 via 10.10.2.1 dev gw0 proto 116 onlink"},
		{datapath.KindRoute, "169.254.0.253/32 dev gw0", "169.254.0.253 dev gw0 proto 116 scope link"},
		{datapath.KindRoute, "default via 172.18.0.1 dev eth0 table 101 proto 116", ""},
		{datapath.KindRoute, "default via fd00::1 dev eth0", "default via fd00::1 dev eth0 proto 116 metric 1024"},
		{datapath.KindRoute, "0.0.0.0/0 dev eth0 table 101", "0.0.0.0/0 dev eth0 table 101 proto 116 scope link"},
		{datapath.KindRoute, "::/0 dev eth0", "::/0 dev eth0 proto 116 metric 1024"},
		{datapath.KindRoute, "blackhole 10.96.0.0/16 proto 116", ""},
		{datapath.KindRule, "100: from all fwmark 0x5/0xff lookup 101 proto 116", ""},
		{datapath.KindRule, "-6 7: from fd00::/64 fwmark 5 iif gw0 lookup main", "-6 7: from fd00::/64 fwmark 0x5 iif gw0 lookup main proto 116"},
		{datapath.KindSysctl, "net.ipv4.ip_forward=1", "net.ipv4.ip_forward = 1"},
		{datapath.KindIPSet, "create TOWTANK-NODEPORT hash:ip,port family inet", "create TOWTANK-NODEPORT hash:ip,port family inet maxelem 65536"},
		{datapath.KindIPSetEntry, "add TOWTANK-NODEPORT 172.18.0.11,30080", "add TOWTANK-NODEPORT 172.18.0.11,tcp:30080"},
		{datapath.KindIPSetEntry, "add TOWTANK-POD 10.10.1.7/24", "add TOWTANK-POD 10.10.1.0/24"},
		{datapath.KindIPSetEntry, "add TOWTANK-EXT fd00::7/128", "add TOWTANK-EXT fd00::7"},
		{datapath.KindIPTables, "iptables -t nat -N TOWTANK-POSTROUTING", ""},
		{datapath.KindIPTables, "iptables -t nat -A TOWTANK-POSTROUTING -m mark --mark 0x5/0xff -m comment --comment towtank-100 -j SNAT --to-source 172.18.0.50", ""},
		{datapath.KindIPTables, "ip6tables -t nat -A PREROUTING -m comment --comment towtank-0 -j TOWTANK-PREROUTING # behind KUBE-SERVICES", ""},
		{datapath.KindIPTables, "iptables -t filter -A TOWTANK-FORWARD -j DROP", ""},
		{datapath.KindHealth, "health 30500 service default/web local 2 addrs fd00::1,10.0.0.1", "health 30500 service default/web local 2 addrs 10.0.0.1,fd00::1"},
	} {
		o, err := Parse(c.kind, c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		want := c.want
		if want == "" {
			want = c.in
		}
		if o.String() != want {
			t.Errorf("%s\n got %s\nwant %s", c.in, o, want)
		}
		again, err := Parse(c.kind, o.String())
		if err != nil || again != o { // comparable, and equal as a value
			t.Errorf("%s parses back to %v, %v", o, again, err)
		}
		if o.Kind() != c.kind || o.Key().Kind != c.kind {
			t.Errorf("%s: kind %s, of its key %s", o, o.Kind(), o.Key().Kind)
		}
	}
}

// The rules are written as a person would and compared with what iptables-save 1.8.9 prints.
func TestRuleSpecPrintsAsIptablesSave(t *testing.T) {
	for in, want := range map[string]string{
		"-m mark --mark 0x5/0xff -s 10.0.0.1 -p tcp --dport 80 -m comment --comment towtank-10 -j SNAT --to-source 1.2.3.4 --random-fully": "-s 10.0.0.1/32 -p tcp -m mark --mark 0x5/0xff -m tcp --dport 80 -m comment --comment towtank-10 -j SNAT --to-source 1.2.3.4 --random-fully",
		"-m set --match-set S dst,dst -j DNAT --to 169.254.0.252":                                                                          "-m set --match-set S dst,dst -j DNAT --to-destination 169.254.0.252",
		"-o gw -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE":                                "-o gw -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE",
		"-i gw0 -m mac ! --mac-source 0E:00:00:00:00:05 -j MARK --or-mark 0x80":                                                            "-i gw0 -m mac ! --mac-source 0e:00:00:00:00:05 -j MARK --set-xmark 0x80/0x80",
		"-j MARK --and-mark 0x80":             "-j MARK --set-xmark 0x0/0xffffff7f",
		"-j MARK --set-mark 5/0xff":           "-j MARK --set-xmark 0x5/0xff",
		"-j MARK --xor-mark 5":                "-j MARK --set-xmark 0x5/0x0",
		"-j CONNMARK --save-mark --mask 0xff": "-j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff",
		"-j CONNMARK --restore-mark":          "-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff",
		"-j CONNMARK --or-mark 5":             "-j CONNMARK --set-xmark 0x5/0x5",
		"-m conntrack --ctstate ESTABLISHED,NEW,RELATED,INVALID --ctdir REPLY -j ACCEPT": "-m conntrack --ctstate INVALID,NEW,RELATED,ESTABLISHED --ctdir REPLY -j ACCEPT",
		"-p icmp --icmp-type echo-request -j REJECT":                                     "-p icmp -m icmp --icmp-type 8 -j REJECT --reject-with icmp-port-unreachable",
		"-p tcp ! --dport 80:90 --sport 1:65535 --syn -j REJECT --reject-with tcp-reset": "-p tcp -m tcp --sport 1:65535 ! --dport 80:90 --tcp-flags FIN,SYN,RST,ACK SYN -j REJECT --reject-with tcp-reset",
		"-p tcp -m multiport --dports 1,2,3:4 -j DROP":                                   "-p tcp -m multiport --dports 1,2,3:4 -j DROP",
		"! -p 6 -s 0/0 ! -d 1.2.3.4/24 ! -i eth+":                                        "! -d 1.2.3.0/24 ! -i eth+ ! -p tcp",
		`-m comment --comment "a b:c" -j LOG --log-prefix "xx "`:                         `-m comment --comment "a b:c" -j LOG --log-prefix "xx "`,
		"-p udp -m udp --dport 6081 -m addrtype --dst-type LOCAL -j NOTRACK":             "-p udp -m udp --dport 6081 -m addrtype --dst-type LOCAL -j CT --notrack",
		"-p tcp -j SNAT --to-source 1.2.3.4:10-20":                                       "-p tcp -j SNAT --to-source 1.2.3.4:10-20",
		"-p sctp --dport 80 -g FOO":                                                      "-p sctp -m sctp --dport 80 -g FOO",
	} {
		r, err := ParseRuleSpec(V4, in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if r.String() != want {
			t.Errorf("%s\n got %s\nwant %s", in, r, want)
		}
		if again, err := ParseRuleSpec(V4, r.String()); err != nil || again.String() != want {
			t.Errorf("%s parses back to %v, %v", want, again, err)
		}
	}
	for in, want := range map[string]string{
		"-s fd00::1/10 -p tcp -j REJECT":                           "-s fd00::/10 -p tcp -j REJECT --reject-with icmp6-port-unreachable",
		"-p tcp -j DNAT --to-destination [fd00::1]:80":             "-p tcp -j DNAT --to-destination [fd00::1]:80",
		"-p icmpv6 --icmpv6-type neighbour-solicitation -j ACCEPT": "-p ipv6-icmp -m icmp6 --icmpv6-type 135 -j ACCEPT",
	} {
		if r, err := ParseRuleSpec(V6, in); err != nil || r.String() != want {
			t.Errorf("%s\n got %v, %v\nwant %s", in, r, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		kind     datapath.Kind
		in, want string
	}{
		{datapath.KindLink, "dev name-of-17-bytes type veth mtu 1450 alias towtank:x", "1 to 15 bytes"},
		{datapath.KindLink, "dev x type veth mtu 1450 alias mine", "want towtank:OWNER"},
		{datapath.KindLink, "dev x type bond mtu 1450 alias towtank:x", "want veth, bridge"},
		{datapath.KindLink, "dev x type veth mtu 9 alias towtank:x", "MTU 9"},
		{datapath.KindAddress, "224.0.0.1/4 dev x", "not a unicast"},
		{datapath.KindAddress, "::ffff:10.0.0.1/128 dev x", "write 10.0.0.1"},
		{datapath.KindRoute, "10.0.0.0/8 via fd00::1 dev x", "not of the route's family"},
		{datapath.KindRoute, "10.0.0.0/8 dev x mtu 5", `unknown word "mtu"`},
		{datapath.KindRule, "0: from all lookup 5", "1 to 32765"},
		{datapath.KindRule, "9: from all fwmark 0x10/0xf lookup 5", "never matches"},
		{datapath.KindNeighbour, "10.0.0.1 dev x", "want a MAC"},
		{datapath.KindIPSet, "create KUBE-X hash:ip family inet", "our sets are named TOWTANK-"},
		{datapath.KindIPSetEntry, "add TOWTANK-X 0.0.0.0/0", "length 0"},
		{datapath.KindIPTables, "iptables -t nat -A KUBE-X -m comment --comment towtank-1 -j RETURN", "TOWTANK-"},
		{datapath.KindIPTables, "iptables -t nat -A PREROUTING -j TOWTANK-X", "no comment towtank-PRIORITY"},
		{datapath.KindIPTables, "iptables -t nat -A TOWTANK-X -m comment --comment towtank-1 -j TPROXY", "not modelled"},
		{datapath.KindIPTables, "iptables -t nat -A TOWTANK-X -m comment --comment towtank-1 -m hashlimit --x 1 -j RETURN", "not modelled"},
		{datapath.KindIPTables, "iptables -t filter -A TOWTANK-X -m comment --comment towtank-1 -j SNAT --to 1.2.3.4", "only in table nat"},
		{datapath.KindIPTables, "iptables -t nat -A TOWTANK-X -m comment --comment towtank-1 -j SNAT --to fd00::4", "not of family v4"},
		{datapath.KindHealth, "health 0 service a/b local 1", "1 to 65535"},
		{datapath.KindFlow, "x", "not a host object"},
	} {
		o, err := Parse(c.kind, c.in)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v; want an error with %q", c.in, o, err, c.want)
		}
	}
}

func TestPeerIsOutsideTheText(t *testing.T) {
	p, err := NewPeer(Peer{Netns: "c1", Name: "eth0", MTU: 1450})
	if err != nil {
		t.Fatal(err)
	}
	full, err := ParsePeer("netns c1 dev eth0 address 0a:00:00:00:00:02 mtu 1450 addr fd00::5/64 addr 10.10.1.5/24 via 10.10.1.1 tx off")
	if err != nil {
		t.Fatal(err)
	}
	if want := "netns c1 dev eth0 address 0a:00:00:00:00:02 mtu 1450 addr 10.10.1.5/24 addr fd00::5/64 via 10.10.1.1 tx off"; full.String() != want {
		t.Errorf("got %s, want %s", full, want)
	}
	l := Link{Name: "v", Type: LinkVeth, MTU: 1450, Alias: "towtank:c1", Peer: p.String()}
	a, err := NewLink(l)
	if err != nil {
		t.Fatal(err)
	}
	l.Peer = full.String()
	b, err := NewLink(l)
	if err != nil {
		t.Fatal(err)
	}
	if !datapath.Equal(a, b) || a == b {
		t.Errorf("%v and %v: want one text, two values", a, b)
	}
}
