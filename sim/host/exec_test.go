package host

import (
	"strings"
	"testing"

	"towtank/sim/packet"
)

// What the model does not know, or Linux refuses, is an error that says so.
func TestExecErrors(t *testing.T) {
	for cmd, wantErr := range map[string]string{
		"":                                          "no command",
		"tc qdisc show":                             "not modelled",
		"ip netns list":                             "ip netns list: not modelled",
		"ip -j addr":                                "option -j: not modelled",
		"ip addr add 10.0.0.1/24":                   `Cannot find device ""`,
		"ip addr add 10.0.0.1/24 dev nope":          `Cannot find device "nope"`,
		"ip addr add 300.0.0.1/24 dev gw0":          "want an address or a prefix",
		"ip addr add 10.0.0.1/24 dev gw0 x":         `"x": not modelled`,
		"ip addr del 10.0.0.1/24 dev gw0":           "Address not found",
		"ip addr add 10.1.0.1/24 dev gw0":           "already assigned",
		"ip link add x type bond":                   "Unknown device type",
		"ip link add gw0 type dummy":                "File exists",
		"ip link del gw0":                           "Operation not supported",
		"ip link set gw0 master br0":                "ip link set master: not modelled",
		"ip link set gw0 mtu 40":                    "mtu less than device minimum",
		"ip route add 10.9.0.1/16 dev gw0":          "host bits are set",
		"ip route add 10.9.0.0/16 via 9.9.9.9":      "Nexthop has invalid gateway",
		"ip route add 10.1.0.0/24 dev gw0":          "File exists",
		"ip route add 10.9.0.0/16 dev gw0 mtu 1400": `"mtu": not modelled`,
		"ip route del 10.9.0.0/16":                  "No such process",
		"ip route append 10.9.0.0/16 dev gw0":       "not modelled",
		"ip rule add from 10.0.0.0/8 suppress_prefixlength 0 table 5": "not modelled",
		"ip rule add from fd00::/8 table 5":                           "not of the rule's family",
		"ip rule del pref 77":                                         "No such file or directory",
		"ip rule del pref 0":                                          "not modelled",
		"ip neigh add 10.1.0.5 dev gw0":                               "want lladdr",
		"ip neigh del 10.1.0.5 dev gw0":                               "No such file or directory",
		"ip neigh flush":                                              "Flush requires arguments",
		"iptables -t broute -S":                                       "Table does not exist",
		"iptables -A NOPE -j ACCEPT":                                  "No chain/target/match by that name",
		"iptables -A INPUT -j NOPE":                                   "No chain/target/match by that name",
		"iptables -A INPUT -m hashlimit -j ACCEPT":                    "-m hashlimit: not modelled",
		"iptables -A INPUT -p tcp -j TPROXY":                          "target TPROXY: not modelled",
		"iptables -A INPUT --dport 80 -j ACCEPT":                      "needs -p tcp",
		"iptables -A INPUT -o gw0 -j ACCEPT":                          "-o cannot be used in INPUT",
		"iptables -A INPUT -s fd00::1 -j ACCEPT":                      "not of family v4",
		"iptables -A INPUT -m set --match-set NOPE src":               "Set NOPE doesn't exist",
		"iptables -A INPUT -m set --match-set HASHNET src,dst":        "want 1 of src and dst",
		"ip6tables -A INPUT -m set --match-set HASHNET src":           "is of family v4",
		"iptables -D INPUT -j ACCEPT":                                 "Bad rule",
		"iptables -D INPUT 3":                                         "Index of deletion too big",
		"iptables -P INPUT REJECT":                                    "Bad policy name",
		"iptables -P USER DROP":                                       "Bad built-in chain name",
		"iptables -N USER":                                            "Chain already exists",
		"iptables -X INPUT":                                           "neither made nor deleted",
		"iptables -X USER":                                            "Directory not empty",
		"iptables -A USER -j USER":                                    "jump in a circle",
		"iptables -t nat -A PREROUTING -j DROP":                       "not for filtering",
		"iptables -t nat -A PREROUTING -j SNAT --to-source 1.2.3.4":   "not allowed in PREROUTING",
		"iptables -t nat -A OUTPUT -j MASQUERADE":                     "not allowed in OUTPUT",
		"iptables -t nat -A SNATTER -j ACCEPT;iptables -t nat -A PREROUTING -j SNATTER": "target SNAT is not allowed in PREROUTING",
		"iptables -L": `"-L": not modelled`,
		"iptables-restore\n*filter\n-A INPUT -j ACCEPT":    "COMMIT expected",
		"iptables-restore\n-A INPUT -j ACCEPT\nCOMMIT":     "no table before it",
		"iptables-restore\n*filter\n-A INPUT -m x\nCOMMIT": "line 2",
		"ip addr\nip link":                          "only iptables-restore",
		"ipset create X hash:mac":                   "not modelled",
		"ipset create HASHNET hash:net":             "already exists",
		"ipset add NOPE 10.0.0.1":                   "does not exist",
		"ipset add HASHNET 10.0.0.0/8":              "already added",
		"ipset del HASHNET 11.0.0.0/8":              "not added",
		"ipset add HASHNET 10.0.0.1,tcp:80":         "does not fit type",
		"ipset destroy HASHNET":                     "in use",
		"ipset swap A B":                            "not modelled",
		"sysctl -w net.ipv4.foo=1":                  "not modelled",
		"sysctl -w net.ipv4.ip_forward":             "name=value",
		"sysctl -w net.ipv4.ip_forward=yes":         "want a number",
		"conntrack -E":                              "want -L, -D or -F",
		"conntrack -L --zone 5":                     "--zone: not modelled",
		`iptables -A INPUT -m comment --comment "x`: "open quote",
	} {
		w, n := bare(t)
		for _, c := range []string{
			"ip addr add 10.1.0.1/24 dev gw0", "iptables -N USER", "iptables -A USER -j RETURN", "ipset create HASHNET hash:net", "ipset add HASHNET 10.0.0.0/8",
			"iptables -A FORWARD -m set --match-set HASHNET src", "iptables -t nat -N SNATTER", "iptables -t nat -A SNATTER -j SNAT --to-source 1.2.3.4",
		} {
			w.exec(n, c)
		}
		cmds := strings.Split(cmd, ";")
		for _, c := range cmds[:len(cmds)-1] {
			w.exec(n, c)
		}
		before := n.DumpText()
		out, err := n.Exec(cmds[len(cmds)-1])
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%q: %q, %v, want an error with %q", cmd, out, err, wantErr)
		}
		if after := n.DumpText(); after != before {
			t.Errorf("%q changed the namespace:\n%s\nwas\n%s", cmd, after, before)
		}
	}
}

// What iptables-save prints restores to the same; a restore that fails changes nothing of its table;
// --noflush keeps what the text does not declare.
func TestRestore(t *testing.T) {
	w, n := bare(t)
	text := strings.Join([]string{
		"*mangle", ":PREROUTING ACCEPT [0:0]", ":INPUT ACCEPT [0:0]", ":FORWARD ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]", ":POSTROUTING ACCEPT [0:0]",
		"-A PREROUTING -i gw0 -m mac --mac-source 0e:00:00:00:00:05 -j MARK --set-xmark 0x5/0xff",
		"-A OUTPUT -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff",
		"COMMIT", "*nat", ":PREROUTING ACCEPT [0:0]", ":INPUT ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]", ":POSTROUTING DROP [0:0]", ":KUBE-X - [0:0]",
		`-A PREROUTING -m comment --comment "a b" -j KUBE-X`, "-A KUBE-X -p tcp -m tcp --dport 80 -j DNAT --to-destination 1.2.3.4:80", "COMMIT", "",
	}, "\n")
	w.exec(n, "iptables-restore\n"+text)
	want(t, "iptables-save", w.exec(n, "iptables-save"), text)
	if _, err := n.Exec("iptables-restore\n*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j NOPE\nCOMMIT"); err == nil {
		t.Error("a jump to nowhere was accepted")
	}
	want(t, "after a failed restore", w.exec(n, "iptables-save"), text)
	w.exec(n, "iptables-restore --noflush\n*nat\n:MINE - [0:0]\n-A MINE -j RETURN\n-I PREROUTING -j MINE\nCOMMIT")
	got := w.exec(n, "iptables -t nat -S")
	if !strings.Contains(got, "-A PREROUTING -j MINE\n-A PREROUTING -m comment") || !strings.Contains(got, "-A KUBE-X") {
		t.Errorf("after --noflush: %s", got)
	}
	w.exec(n, "iptables-restore --noflush\n*nat\n:MINE - [0:0]\n-A MINE -j ACCEPT\nCOMMIT") // a declared chain is emptied, jumps stay
	if got := w.exec(n, "iptables -t nat -S MINE"); got != "-N MINE\n-A MINE -j ACCEPT\n" {
		t.Errorf("declared again: %s", got)
	}
	want(t, "v6 has its own", w.exec(n, "ip6tables-save"), "")
}

func TestExecShows(t *testing.T) {
	w, n := bare(t)
	for _, c := range []string{
		"ip address add 10.1.0.1/24 dev gw0", "ip r a 10.2.0.0/16 via 10.1.0.9", "ip -6 addr add fd00::1/64 dev gw0", "ip -6 r add default via fd00::9", "ip neigh add 10.1.0.9 lladdr 0a:00:00:00:00:09 dev gw0 nud permanent",
		"ip rule add fwmark 0x5/0xff table 101", "ip route add 10.3.0.0/16 via 10.1.0.9 table 101 metric 7 proto static",
		"ip link add v0 mtu 1400 address 0a:00:00:00:00:07 type veth peer name v1", "ip link add link eth0 name eth0.5 type vlan id 5", "sysctl -w net.ipv4.ip_forward=1",
	} {
		w.exec(n, c)
	}
	for cmd, exp := range map[string]string{
		"ip route":                            "10.1.0.0/24 dev gw0 proto kernel scope link src 10.1.0.1\n10.2.0.0/16 via 10.1.0.9 dev gw0\n",
		"ip route show table 101":             "10.3.0.0/16 via 10.1.0.9 dev gw0 proto static metric 7\n",
		"ip -6 route":                         "default via fd00::9 dev gw0 metric 1024\nfd00::/64 dev gw0 proto kernel metric 256\n",
		"ip rule":                             "0: from all lookup local\n32765: from all fwmark 0x5/0xff lookup 101\n32766: from all lookup main\n32767: from all lookup default\n",
		"ip neigh":                            "10.1.0.9 dev gw0 lladdr 0a:00:00:00:00:09 PERMANENT\n",
		"ip route get 10.3.0.1 mark 5":        "10.3.0.1 via 10.1.0.9 dev gw0 table 101 src 10.1.0.1\n",
		"ip route get 10.1.0.1":               "local 10.1.0.1 dev lo src 10.1.0.1\n",
		"sysctl net.ipv4.conf.gw0.forwarding": "net.ipv4.conf.gw0.forwarding = 1\n",
		"sysctl -n net.ipv4.conf.eth0/5.forwarding": "1\n",
		"ip link show v0": "4: v0@v1: <BROADCAST,MULTICAST> mtu 1400 state DOWN link/ether 0a:00:00:00:00:07\n",
	} {
		want(t, cmd, w.exec(n, cmd), exp)
	}
	w.exec(n, "ip addr flush dev gw0")
	w.exec(n, "ip link del v1")
	if n.Link("v0") != nil {
		t.Error("v0 is still there")
	}
	if out := w.exec(n, "conntrack -L"); out != "" {
		t.Error(out)
	}
}

func TestConntrackCommands(t *testing.T) {
	g := newGateway(t)
	g.exec(g.ext, "ip route add 10.10.1.0/24 via 172.18.0.11")
	for port := range uint16(3) {
		g.fromPod(podMAC, packet.Packet{Dst: addr("172.18.0.100"), Proto: packet.ProtoUDP, SrcPort: 100 + port, DstPort: 8080})
	}
	want(t, "-L", g.exec(g.node, "conntrack -L -p udp --sport 101"),
		"udp      17 30 src=10.10.1.2 dst=172.18.0.100 sport=101 dport=8080 src=172.18.0.100 dst=10.10.1.2 sport=8080 dport=101 [ASSURED] mark=0 use=1\n")
	if out := g.exec(g.node, "conntrack -D -p udp -d 172.18.0.100 --sport 102"); len(lines(out)) != 1 {
		t.Error(out)
	}
	if n := len(g.node.DumpConntrack()); n != 2 {
		t.Errorf("%d entries", n)
	}
	g.exec(g.node, "conntrack -F")
	want(t, "after -F", g.node.ConntrackText(), "")
}
