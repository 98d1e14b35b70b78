package lang

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// canonicalSteps has every command with every option in canonical text.
var canonicalSteps = []string{
	"backends sim netns",
	"option ip=dual traffic=hybrid tunnel=vxlan proxyAll=false proxyLoadBalancerIPs=false maxEgressIPsPerNode=3 skipServices=a/b,c/d loadBalancerMode=dsr nodePortAddresses=10.0.0.0/8,fd00::/16 podCIDRSize=28 serviceCIDR=10.97.0.0/16,fd00:97::/112 membership=egressgroup memberTimeout=20s memberRejoin=90s auditEvery=15m",
	"nodes n1 n2 n3",
	"external ext",
	"external ext ip=172.18.0.200,fd00:18::200 net=blue serve=80/tcp,53/udp,9/sctp next=n2",
	"network blue cidr=10.20.0.0/24 vlan=20",
	"label node/n1 egress=yes topology.kubernetes.io/zone=a gone- empty=",
	"label node/owner/10.0.0.1 a=b",
	`annotate node/n1 node.antrea.io/max-egress-ips=2 x="a b" gone-`,
	"apply egress.yaml",
	`apply "two words.yaml"`,
	"delete egress web",
	"delete service default/web",
	"delete egress.yaml",
	`patch egress web {"spec": {"egressIP": "172.18.0.51"}}`,
	`patch service default/web {"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}`,
	"namespace prod env=prod node=x",
	"pod default/client node=n1",
	"pod default/client node=n1 app=web label:node=x label:serve=y label:Ready=z serve=80/tcp ready=false ip=10.10.1.9,fd00:10:1::9 hostNetwork=true add=no",
	"pod default/client node=owner/172.18.0.50",
	"pod-start default/client", "pod-stop default/client", "pod-delete default/client", "pod-delete backend/p",
	"pod-ready default/client true", "pod-ready default/client false",
	"pod-terminate default/client", "pod-terminate default/client serving=false",
	"cni add c1 default/client node=n1 ifname=eth1 expect ok",
	"cni del c1 default/client node=n1 expect error",
	"cni check c1 default/client node=n1 expect error=11",
	"cni gc c1,c2 node=n1", "cni gc none node=n1 expect ok", "cni status node=n1 expect error=50",
	"endpoints default/web 250 node=n1,n2", "endpoints default/web 0",
	"settle", "settle within=90s", "advance 100ms", "advance 0s", "advance 90m", "advance 1500ms", "step", "step 3",
	"probe default/client -> ext",
	"probe default/client -> ext expect ok source=172.18.0.50",
	"probe default/client -> svc/default/web:http/tcp sport=40000 size=1400 df family=v6 count=20 as=p1 expect ok backend=default/a|default/b:8080 source=node/n1|node/owner/10.0.0.1 to=lb/default/web via=n1 reply-via!=n2 sticky",
	"probe default/client -> 172.18.0.1/icmp expect drop",
	"probe default/client -> fd00::1/icmp",
	"probe ext -> [fd00::1]:80/udp next=n2 expect reject backend!=default/a",
	"probe ext -> nodeport/n1/default/web:http count=9 expect backends=default/a,default/b",
	"probe ext -> nodeport/owner/172.18.0.50/default/web expect same-as=p1",
	"probe ext -> nodeport/owner/[fd00::50]/default/web:80 expect same-as!=p1",
	"probe node/n1 -> gateway/n1:8080",
	"probe gateway/n1 -> lb/default/web:53/udp expect to!=node/n1|gateway/n1",
	"probe backend/p1 -> egress/web",
	"probe default/client -> node/n1:30001/http expect ok http=503",
	"probe default/client -> node/n1:30001/http expect http!=200|503",
	"probe default/client -> backend/p1:80/sctp",
	"open c default/client -> svc/default/web:80 sport=4444 expect ok backend=default/a",
	"close c",
	"send c count=3 size=1400 df expect ok backend=default/a source=node/n1",
	"send c expect reset",
	"stream s default/client -> ext every=100ms",
	"stream s default/client -> ext:8080/udp every=1s flow=one sport=5555 family=v4",
	"stream-stop s", "stream-stop s expect lost<=3 source=node/n1 backend!=default/a", "stream-stop s expect lost=0",
	"inject default/client dl_src=0a:00:00:00:00:01 nw_src=10.0.0.1 nw_proto=6 tp_dst=0x50 tcp_flags=syn|ack expect drop",
	"inject ext arp_op=2 arp_spa=172.18.0.50 arp_sha=0a:00:00:00:00:01",
	"agent n1 stop", "agent controller kill", "agent * restart", "agent owner/1.2.3.4 pause",
	"ovs n1 restart", "node-down n1", "node-down owner/172.18.0.50 silent", "node-up n1", "node-up n1 ip=172.18.0.77",
	"partition n1,n2 | n3,api | ext,*", "heal", "loss n1 ext 30", "clock n1 skew=-90s",
	"watch n1 hold", "watch * close service endpointslice", "watch controller release egress count=3",
	"fail n1 switch", "fail * any skip=2 count=3 mode=die-after", "fail n1 ports mode=late", "fail n1 clear",
	"host n1 : ip addr add 1.2.3.4/32 dev eth0 # literal", `host default/client : sysctl -w "net.x=1"`, "host owner/1.2.3.4 : ip link",
	"address n1 add 1.2.3.4", "address n1 del fd00::1/64",
	"expect-owner 172.18.0.50 node=n1", "expect-owner 172.18.0.50 node=any", "expect-owner fd00::1 node=none",
	"expect-status egress web egressNode=n1 condition.IPAssigned=True condition.IPAssigned.reason!=A|B egressIP= count=1",
	"expect-status pod default/a podIP=10.0.0.1", "expect-status egress * count=3",
	"expect-event egress web reason=Assigned count=2", "expect-event pod default/a reason=NetworkReady",
	"mark", "expect-writes n1 unit=service/default/web switch=1 host<=2 api=0 packet-in=0", "expect-writes * switch=0",
	"expect-clean n1", "expect-clean *", "expect-objects n1 unit=egress/web count=3",
	`expect-dump n1 host has "-A INPUT -j ACCEPT"`, "expect-dump n1 switch lacks word", `expect-dump n1 host has "a \"quoted\" \\ = b"`,
	"trace default/client -> svc/default/web:80 sport=4000",
	"dump n1", "dump n1 store", "keep",
}

// Every command parses, prints back to the same text, and parses from that to the same step.
func TestStepsRoundTrip(t *testing.T) {
	used := map[string]bool{"for": true}
	for _, text := range canonicalSteps {
		step, err := ParseStep(text)
		if err != nil {
			t.Errorf("%s\n\t%v", text, err)
			continue
		}
		used[step.Command()] = true
		if got := step.String(); got != text {
			t.Errorf("printed differently\n\twritten %s\n\tprinted %s", text, got)
		}
		again, err := ParseStep(step.String())
		if err != nil {
			t.Errorf("%s: %v", step, err)
		} else if d := cmp.Diff(step, again, cmpAddr); d != "" {
			t.Errorf("%s: parsed differently from its own text\n%s", text, d)
		}
	}
	for _, name := range commandNames() {
		if !used[name] {
			t.Errorf("command %s is not in the table", name)
		}
	}
}

var cmpAddr = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// What may be written in several ways is printed in one.
func TestCanonical(t *testing.T) {
	for written, want := range map[string]string{
		`probe   default/a  ->  "ext"   expect`:                 "",
		"probe  owner/10.0.0.1 -> [fd00::1]":                    "probe node/owner/10.0.0.1 -> fd00::1",
		"probe a/b -> ext as=x count=2 df expect source=ext ok": "probe a/b -> ext df count=2 as=x expect ok source=ext",
		"settle within=1m":                                      "settle within=60s",
		"advance 1h30m":                                         "advance 90m",
		"delete Service default/web":                            "delete service default/web",
		"watch n1 hold EndpointSlice":                           "watch n1 hold endpointslice",
		"pod a/b ready=true add=yes node=n1":                    "pod a/b node=n1",
		"pod a/b node=n1 label:x=y":                             "pod a/b node=n1 x=y",
		"expect-writes n1 switch=<=3":                           "expect-writes n1 switch<=3",
		"loss a b 5%":                                           "loss a b 5",
		`namespace "x"`:                                         "namespace x",
		"partition \"*\" | n1":                                  "partition * | n1",
	} {
		step, err := ParseStep(written)
		if want == "" {
			if err == nil {
				t.Errorf("%s: no error", written)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", written, err)
		} else if step.String() != want {
			t.Errorf("%s\n\tprinted %s\n\twant    %s", written, step, want)
		}
	}
}

const wholeFile = `# The Egress IP moves when its node dies.
backends sim netns

option memberTimeout=10s # quicker
nodes n1 n2 n3
external ext
for n in n1,n2 {
  pod default/p-$n node=$n app=web # one each
  # twice
  [!netns] for i in 1..3 {
    apply pod.yaml
    patch pod default/q-$n-${i} {"metadata":{"labels":{"i":"$i"}}}
  }

  settle
} # done
[sim] [ovsdummy] settle
[!netns] probe default/p-n1 -> ext expect ok
-- pod.yaml --
apiVersion: v1
kind: Pod
metadata: {name: q-$n-$i}
-- other.yaml --
`

// A canonical file is printed as it is written, comments, loops, prefixes and files included.
func TestFileRoundTrip(t *testing.T) {
	f, err := Parse("x.scenario", []byte(wholeFile))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wholeFile, string(f.Format())); d != "" {
		t.Errorf("printed differently (-written +printed)\n%s", d)
	}
	if got := f.Options().MemberTimeout; got != 10*time.Second {
		t.Errorf("memberTimeout is %v", got)
	}
	if d := cmp.Diff([]string{"sim", "netns"}, f.Backends()); d != "" {
		t.Error(d)
	}

	// What is not canonical is printed so, and stays.
	messy := strings.ReplaceAll(strings.ReplaceAll(wholeFile, "  settle\n", "\tsettle   \n\n\n"), "\n\noption", "\n\n\n\noption  ")
	m, err := Parse("x.scenario", []byte("\n\n"+messy))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wholeFile, string(m.Format())); d != "" {
		t.Errorf("printed differently (-want +printed)\n%s", d)
	}
}

// Loops are unrolled in order, with the variables replaced in the steps and in the files.
func TestExpand(t *testing.T) {
	f, err := Parse("x.scenario", []byte(wholeFile))
	if err != nil {
		t.Fatal(err)
	}
	instances, err := f.Expand()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var lastFile string
	for i := range instances {
		in := &instances[i]
		on := ""
		for _, b := range Backends {
			if in.RunsOn(b) {
				on += b[:1]
			}
		}
		got = append(got, on+" "+in.Step.String())
		if a, ok := in.Step.(Apply); ok {
			data, _ := in.Data(a.File)
			lastFile = string(data)
		}
	}
	want := []string{
		"sonc backends sim netns", "sonc option memberTimeout=10s", "sonc nodes n1 n2 n3", "sonc external ext",
		"sonc pod default/p-n1 node=n1 app=web",
		"soc apply pod.yaml", `soc patch pod default/q-n1-1 {"metadata":{"labels":{"i":"1"}}}`,
		"soc apply pod.yaml", `soc patch pod default/q-n1-2 {"metadata":{"labels":{"i":"2"}}}`,
		"soc apply pod.yaml", `soc patch pod default/q-n1-3 {"metadata":{"labels":{"i":"3"}}}`,
		"sonc settle",
		"sonc pod default/p-n2 node=n2 app=web",
		"soc apply pod.yaml", `soc patch pod default/q-n2-1 {"metadata":{"labels":{"i":"1"}}}`,
		"soc apply pod.yaml", `soc patch pod default/q-n2-2 {"metadata":{"labels":{"i":"2"}}}`,
		"soc apply pod.yaml", `soc patch pod default/q-n2-3 {"metadata":{"labels":{"i":"3"}}}`,
		"sonc settle", "so settle", "soc probe default/p-n1 -> ext expect ok",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if !strings.Contains(lastFile, "name: q-n2-3}") {
		t.Errorf("the variables in the file are not replaced: %s", lastFile)
	}
}

// A scenario that Go code builds prints as a file would be written, and parses back.
func TestBuilt(t *testing.T) {
	f := &File{Name: "built", Lines: []Line{
		{Comment: "# built"},
		{Step: Nodes{Names: []string{"n1"}}},
		{Step: External{Name: "ext"}},
		{Step: Pod{Namespace: "default", Name: "a", Node: NodeRef{Name: "n1"}}},
		{},
		{Only: []string{"sim"}, Step: Probe{
			From: Addr("default/a"), To: To("ext:8080/udp"), Count: 3,
			Expect: &Expect{Verdict: OK, Source: OneOf(Addr("node/n1")), Via: NoneOf(NodeRef{Name: "n1"})},
		}},
		{Loop: &Loop{Var: "i", From: 1, To: 2, Body: []Line{{Step: Settle{}}}}},
	}}
	want := `# built
nodes n1
external ext
pod default/a node=n1

[sim] probe default/a -> ext:8080/udp count=3 expect ok source=node/n1 via!=n1
for i in 1..2 {
  settle
}
`
	if d := cmp.Diff(want, string(f.Format())); d != "" {
		t.Fatalf("(-want +printed)\n%s", d)
	}
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	again, err := Parse("built", f.Format())
	if err != nil {
		t.Fatal(err)
	}
	ignoreNumber := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Number" }, cmp.Ignore())
	if d := cmp.Diff(f, again, ignoreNumber, cmpAddr); d != "" {
		t.Errorf("(-built +parsed)\n%s", d)
	}
}

func TestUsage(t *testing.T) {
	u := Usage()
	for _, name := range commandNames() {
		if !strings.Contains(u, name+" ") && !strings.Contains(u, name+"\n") {
			t.Errorf("usage lacks %s", name)
		}
	}
}

// Whatever is read does not panic, and what is accepted prints to text that reads back as the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(wholeFile))
	f.Add([]byte(strings.Join(canonicalSteps, "\n")))
	for _, s := range canonicalSteps {
		f.Add([]byte("nodes n1 n2 n3\nexternal ext\n" + s + "\n-- egress.yaml --\n"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return
		}
		file, err := Parse("f", data)
		if err != nil {
			return
		}
		text := file.Format()
		again, err := Parse("f", text)
		if err != nil {
			t.Fatalf("the printed text is refused: %v\n%s", err, text)
		}
		if got := again.Format(); string(got) != string(text) {
			t.Fatalf("printed differently:\n%q\n%q", text, got)
		}
	})
}
