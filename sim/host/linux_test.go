package host

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"towtank/sim/packet"
)

// likeLinux are commands that are typed in the model and in a network namespace of this machine; after
// each, whether it was accepted and what the namespace then shows must agree.
var likeLinux = []string{
	"ip link add e type veth peer name f", "ip link set e up", "ip link set f up", "ip link add eg0 type bridge",
	"ip addr add 10.0.0.1/24 dev e", "ip addr add 10.0.0.2/24 dev e", "ip addr add 10.0.0.3/25 dev e", "ip addr add 10.0.0.50/32 dev e", "ip addr add 10.0.0.4/24 dev e",
	"ip addr add 10.0.0.4/24 dev e", "ip -6 addr add fd00::1/64 dev e nodad", "ip -6 addr add fd00::50/128 dev e nodad", "ip addr add 10.5.5.5/32 dev eg0",
	"ip -6 addr add fd50::1/128 dev eg0 nodad", "ip route add 10.9.0.0/16 via 10.0.0.99", "ip route add 10.8.0.0/16 via 10.0.0.99 src 10.0.0.1",
	"ip route add 10.9.0.0/16 dev f", "ip route replace 10.9.0.0/16 dev f", "ip route add 10.7.0.0/16 via 9.9.9.9", "ip route add 10.7.0.0/16 via 9.9.9.9 dev e onlink",
	"ip route add 10.6.0.0/16 via 10.0.0.99 metric 7 proto 116", "ip route add 10.6.0.0/16 via 10.0.0.98", "ip route add blackhole 10.96.0.0/16", "ip route add default via 10.0.0.99 table 101",
	"ip -6 route add fd09::/64 via fd00::99", "ip -6 route add fd08::/64 via fd77::99", "ip -6 route add fd07::/64 via fd77::99 dev e onlink", "ip -6 route add blackhole fd06::/64",
	"ip rule add fwmark 0x5/0xff lookup 101", "ip rule add fwmark 0x5/0xff lookup 101 pref 9", "ip rule add from 10.0.0.0/8 iif e lookup main", "ip -6 rule add from fd00::/64 lookup 101", "ip rule del fwmark 0x5/0xff lookup 101 pref 9", "ip rule del pref 77",
	"ip addr del 10.0.0.1/24 dev e", "ip addr add 10.0.0.1/24 dev e", "ip addr add 10.0.0.2/24 dev e", "sysctl -qw net.ipv4.conf.e.promote_secondaries=1", "ip addr del 10.0.0.1/24 dev e",
	"ip neigh add 10.0.0.9 lladdr 0a:00:00:00:00:09 dev e", "ip neigh add 10.0.0.9 lladdr 0a:00:00:00:00:09 dev e", "ip neigh replace 10.0.0.9 lladdr 0a:00:00:00:00:08 dev e", "ip neigh del 10.0.0.7 dev e",
	"ip link set e down", "ip route add 10.9.0.0/16 dev e", "ip link set e up", "ip addr flush dev e", "ip addr del 10.5.5.5 dev eg0", "ip link del f", "ip link del e",
	"ipset create TOWTANK-P hash:ip,port", "ipset create TOWTANK-N hash:net", "ipset create TOWTANK-N hash:net", "ipset create TOWTANK-N6 hash:net family inet6", "ipset add TOWTANK-P 10.0.0.1,30080",
	"ipset add TOWTANK-P 10.0.0.1,udp:53", "ipset add TOWTANK-P 10.0.0.1,udp:53", "ipset add TOWTANK-N 10.0.0.0/24", "ipset add TOWTANK-N 10.0.0.7/32", "ipset add TOWTANK-N 0.0.0.0/0", "ipset add TOWTANK-N6 fd00::/64", "ipset del TOWTANK-N 11.0.0.0/8",
	"iptables -t nat -N TOWTANK-X", "iptables -t nat -N TOWTANK-X", "iptables -t nat -A TOWTANK-X -m set --match-set TOWTANK-P dst,dst -j DNAT --to-destination 169.254.0.252", "iptables -t nat -A OUTPUT -j TOWTANK-X", "iptables -t nat -A POSTROUTING -j TOWTANK-X",
	"ipset destroy TOWTANK-P", "iptables -t nat -X TOWTANK-X", "iptables -t nat -A TOWTANK-X -j NOPE", "iptables -t nat -I PREROUTING 1 -i gw0 -j TOWTANK-X", "iptables -t nat -I PREROUTING 5 -j ACCEPT", "iptables -t nat -A PREROUTING -j DROP",
	"iptables -t mangle -A PREROUTING -i gw0 -m mac --mac-source 0E:00:00:00:00:05 -m conntrack --ctstate NEW -j MARK --set-mark 5/0xff", "iptables -t mangle -A OUTPUT -m mac --mac-source 0e:00:00:00:00:05 -j ACCEPT",
	"iptables -t mangle -A PREROUTING -i gw0 -m conntrack --ctstate NEW -m mark ! --mark 0/0xff -j CONNMARK --save-mark --mask 0xff", "iptables -t mangle -A PREROUTING -m conntrack ! --ctstate NEW --ctdir ORIGINAL -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff",
	"iptables -t nat -A POSTROUTING -o gw0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -m comment --comment towtank-200 -j MASQUERADE --random-fully",
	"iptables -t nat -D TOWTANK-X 1", "iptables -t nat -D TOWTANK-X 1", "iptables -t nat -D OUTPUT -j TOWTANK-X", "iptables -t nat -D OUTPUT -j TOWTANK-X", "ipset destroy TOWTANK-P",
	"iptables -P FORWARD DROP", "iptables -P TOWTANK-X DROP", "iptables -A FORWARD -p tcp --syn -j REJECT", "iptables -A FORWARD -p icmp --icmp-type echo-request -j REJECT --reject-with icmp-host-unreachable",
	"ip6tables -t nat -A POSTROUTING -s fd00::/64 -j SNAT --to-source fd18::50", "ip6tables -A INPUT -p icmpv6 --icmpv6-type neighbour-solicitation -j ACCEPT", "ip6tables -A INPUT -s 10.0.0.1 -j ACCEPT",
	"iptables -F", "iptables -t nat -F", "iptables -t nat -X",
}

var likeLinuxShows = []string{
	"ip route", "ip route show table 101", "ip -6 route", "ip rule", "ip -6 rule", "ip addr show", "ip neigh", "ipset save", "iptables-save", "ip6tables-save",
}

var (
	noise    = regexp.MustCompile(`( pref medium| linkdown| hashsize \d+| bucketsize \d+| initval \S+| valid_lft.*| nodad| tentative| \[detached\]|^#.*)`)
	notShown = regexp.MustCompile(`^$|^\d+: \S+: <|^link/|fe80::|^inet 127\.|^inet6 ::1`)
)

// comparableOutput leaves of an output what the model and Linux both say, in one order: lines sorted,
// but the rules of each chain as they are.
func comparableOutput(s string) string {
	var lines []string
	table := ""
	for _, l := range strings.Split(s, "\n") {
		l = strings.Join(strings.Fields(noise.ReplaceAllString(l, "")), " ")
		switch {
		case notShown.MatchString(l), strings.HasSuffix(l, " ACCEPT [0:0]"), l == "COMMIT":
		case strings.HasPrefix(l, "*"):
			table = l + " "
		default:
			lines = append(lines, table+l)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int {
		if f, g := strings.Fields(a), strings.Fields(b); len(f) > 2 && len(g) > 2 && f[1] == "-A" && g[1] == "-A" {
			return strings.Compare(f[0]+f[2], g[0]+g[2])
		}
		return strings.Compare(a, b)
	})
	return strings.Join(lines, "\n")
}

// TestLikeLinux compares the model with the machine. It needs root, iproute2, iptables and ipset, and
// changes nothing outside a namespace of its own: TOWTANK_LINUX=1 go test -run TestLikeLinux ./sim/host
func TestLikeLinux(t *testing.T) {
	if os.Getenv("TOWTANK_LINUX") == "" {
		t.Skip("TOWTANK_LINUX is not set")
	}
	const mark = "=====END"
	var script strings.Builder
	script.WriteString("ip link set lo up\n")
	for _, c := range likeLinux {
		script.WriteString(c + " >/dev/null 2>&1; echo $?\n")
		for _, s := range likeLinuxShows {
			script.WriteString(s + " 2>/dev/null; echo " + mark + "\n")
		}
	}
	cmd := exec.Command("unshare", "-n", "sh")
	cmd.Stdin = strings.NewReader(script.String())
	raw, err := cmd.Output()
	if err != nil {
		t.Fatalf("unshare: %v", err)
	}
	parts := strings.Split(string(raw), mark+"\n")
	n := New(Config{Name: "n"})
	n.AddLink("unused", packet.MAC{}, 1500, nil)
	shown := map[string]bool{}
	for i, c := range likeLinux {
		_, err := n.Exec(c)
		for j, s := range likeLinuxShows {
			linux := parts[i*len(likeLinuxShows)+j]
			if j == 0 {
				status, rest, _ := strings.Cut(linux, "\n")
				linux = rest
				if (status == "0") != (err == nil) {
					t.Errorf("%s: Linux says status %s, the model %v", c, status, err)
				}
			}
			out, err := n.Exec(s)
			if err != nil {
				t.Fatal(err)
			}
			want, got := comparableOutput(linux), comparableOutput(out)
			if key := s + want + "|" + got; want != got && !shown[key] {
				shown[key] = true
				t.Errorf("after %s: %s\nLinux:\n%s\nmodel:\n%s", c, s, want, got)
			}
		}
	}
}
