package lang

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Every mistake is reported with its line, what was found, and what is allowed or was meant.
func TestErrors(t *testing.T) {
	const start = "nodes n1 n2\nexternal ext\n"
	for _, c := range []struct{ line, want string }{
		{"porbe default/a -> ext", `f:3: unknown command "porbe"; did you mean "probe"?`},
		{"xyzzy", `f:3: unknown command "xyzzy"; allowed: address, advance, agent, annotate`},
		{"probe default/a -> ext cuont=3", `probe: unknown option "cuont=3"; did you mean "count"? allowed: sport=…`},
		{"probe default/a -> ext expect okk", `unknown option "okk"; did you mean "ok"? allowed: ok, drop, reject, backend=…, backend!=…`},
		{"probe default/a -> ext expect", "nothing is expected"},
		{"probe default/a -> ext expect ok drop", "found a second verdict beside ok"},
		{"probe default/a -> ext expect drop source=ext", "expect drop and source= cannot both hold"},
		{"probe default/a -> ext expect http=200", "needs a target with /http"},
		{"probe default/a -> ext exepct ok", `unknown word "exepct"; did you mean "expect"?`},
		{"probe default/a -> ext count=0", `count: found "0", allowed: 1 to 1000000`},
		{"probe default/a -> ext count=2 count=3", "count is given twice"},
		{"probe default/a -> ext count", `found "count", allowed: count=…`},
		{"probe default/a -> ext df=1", `found "df=1", allowed: df without a value`},
		{"probe default/a -> ext count!=3", `found "count!=3", allowed: count=…`},
		{"probe default/a -> ext:99999", `port of ext:99999: found "99999", allowed: 1 to 65535`},
		{"probe default/a -> ext:80/tpc", `found "tpc"; did you mean "tcp"? allowed: tcp, udp, sctp, http`},
		{"probe default/a -> default/b:http", `found "http", allowed: 1 to 65535`},
		{"probe default/a -> a/b/c/d", `TO: found "a/b/c/d", allowed: an IP address, an external host, node/N`},
		{"probe default/a -> ext2", `unknown external host "ext2"; did you mean "ext"? allowed: ext`},
		{"probe default/a -> n1", `unknown external host "n1"; did you mean the node, node/n1?`},
		{"probe svc/default/a -> ext", "FROM: found \"svc/default/a\", allowed: NS/POD"},
		{"probe default/a ext", `found "ext" instead of "->"; usage: probe FROM -> TO`},
		{"probe default/a ->", "TO is missing; usage: probe FROM"},
		{"probe", "FROM is missing"},
		{"probe default/a -> ext expect same-as=x", `unknown probe or connection "x"; none is declared`},
		{"probe default/a -> ext next=n1", "next=n1 is for external hosts, found FROM default/a"},
		{"probe backend/x -> ext", `unknown probe or connection "x"`},
		{`probe "default/a -> ext`, "the quote is not closed"},
		{`host n1 : ` + "ip\x01", "control character"},
		{"pod default/a", "node=N is missing"},
		{"pod default/a node=n3", `unknown node "n3"; did you mean "n1"? allowed: n1, n2`},
		{"pod a node=n1", `NS/NAME: found "a", allowed: NAMESPACE/NAME`},
		{"pod default/A node=n1", `found "default/A", allowed: NAMESPACE/NAME; a NAME is at most 253 lower-case letters, digits, - and ., with`},
		{"pod Default/A_b node=n1", `found "Default/A_b", allowed: NAMESPACE/NAME; a NAMESPACE is at most 63 lower-case letters, digits and -, with`},
		{"pod default/" + strings.Repeat("x", 254) + " node=n1", `found "default/` + strings.Repeat("x", 51) + `…", allowed: NAMESPACE/NAME; a NAME is at most 253 `},
		{"namespace " + strings.Repeat("x", 64), `"` + strings.Repeat("x", 59) + `…" is not a name: at most 63 `},
		{"pod default/p$i node=n1", "no enclosing for has this variable"},
		{"pod default/a node=n1 hostNetwrok=true", `unknown option "hostNetwrok"; did you mean "hostNetwork"? A label of this name is written label:hostNetwrok=`},
		{"pod default/a node=n1 app=web app=x", "label app is given twice"},
		{"pod default/a node=n1 app=a/b", `value "a/b" of label app`},
		{"pod default/a node=n1 ready=yes", `ready: found "yes"; allowed: true, false`},
		{"pod default/a node=n1 serve=80", `found "80", allowed: PORT/PROTO`},
		{"pod default/a node=n1 ip=10.0.0.1,10.0.0.2", "one of each family"},
		{"apply egres.yaml", `unknown file "egres.yaml"; did you mean "egress.yaml"? allowed: egress.yaml`},
		{"delete servce default/a", `unknown kind "servce"; did you mean "service"? allowed:`},
		{"delete egress default/web", `allowed: the NAME of a egress, which has no namespace`},
		{"delete pod /web", "pod: found \"/web\", allowed: NAMESPACE/NAME"},
		{"patch egress web {spec: 1}", "the patch is not a JSON object"},
		{"patch egress web", "the patch is not a JSON object"},
		{"namespace Prod", `"Prod" is not a name`},
		{"pod-ready default/a yes", `found "yes"; allowed: true, false`},
		{"cni ad c1 default/a node=n1", `found "ad"; did you mean "add"? allowed: add, del`},
		{"cni add c1 default/a", "node=N is missing"},
		{"cni add c1 default/a node=n1 expect fail", "allowed: ok, error, error=CODE"},
		{"cni add none default/a node=n1", "allowed: a container id"},
		{"endpoints default/web many", `COUNT: found "many", allowed: 0 to 10000`},
		{"settle 30s", `unknown option "30s"; allowed: within=…`},
		{"settle within=soon", `within: found "soon", allowed: a duration`},
		{"advance -5s", "allowed: a duration"},
		{"advance", "DURATION is missing"},
		{"step 0", "allowed: 1 to 1000000"},
		{"open c default/a -> ext expect drop", `unknown option "drop"; allowed: ok, reject`},
		{"send c", `unknown open "c"; none is declared`},
		{"stream s default/a -> ext", "every=D is missing"},
		{"stream s default/a -> ext every=1s sport=5", "needs flow=one"},
		{"stream-stop s", `unknown stream "s"`},
		{"inject default/a nw_scr=1.2.3.4", `unknown option "nw_scr=1.2.3.4"; did you mean "nw_src"? allowed: dl_src=…`},
		{"inject default/a dl_src=xx", "allowed: a MAC address"},
		{"inject default/a nw_src=fd00::1", "allowed: an IPv4 address"},
		{"inject svc/default/a nw_ttl=1", "allowed: NS/POD, backend/NAME, an external host"},
		{"agent n1 stopp", `found "stopp"; did you mean "stop"? allowed: stop, kill`},
		{"agent n9 stop", `unknown node "n9"`},
		{"partition n1", "a second group after | is missing"},
		{"partition n1 | n1", "n1 is in two groups"},
		{"partition n1 | n7", `unknown node "n7"`},
		{"loss n1 ext 101", "allowed: 0 to 100"},
		{"watch n1 hold servics", `unknown kind "servics"; did you mean "service"? allowed: egress`},
		{"watch n1 hold count=1", `unexpected "count=1"`},
		{"fail n1 swich", `found "swich"; did you mean "switch"?`},
		{"fail n1 switch mode=late", "mode=late is for ports"},
		{"fail n1 switch mode=conflict", "mode=conflict is for api-status"},
		{"host n1 ip link", `found "ip" instead of ":"`},
		{"host n1 :", "COMMAND is missing"},
		{"address n1 add 1.2.3.4/33", "allowed: 1 to 32"},
		{"expect-owner 172.18.0.50", "node= is missing"},
		{"expect-owner 172.18.0.50 node=nobody", `unknown node "nobody"`},
		{"expect-status egress web", "PATH=VALUE or count=N is missing"},
		{"expect-status egress web egressNode", `found "egressNode", allowed: PATH=VALUE`},
		{"expect-event egress web", "reason=R is missing"},
		{"expect-writes n1", "switch=, host=, api= or packet-in= is missing"},
		{"expect-writes n1 unit=svc/a/b switch=1", `unknown kind "svc"; allowed: pod, service`},
		{"expect-objects n1 unit=egress/web", "count=K is missing"},
		{"expect-dump n1 store has x", `found "store"`},
		{"mark now", `unexpected "now"; usage: mark`},
		{"heal all", `unexpected "all"; usage: heal`},
		{"network blue cidr=10.0.0.1/24 vlan=5", "without host bits"},
		{"network blue cidr=10.0.0.0/24", "cidr= or vlan= is missing"},
		{"external node", `"node" is a word of the language`},
		{"external ext", "there is already a node or an external host ext"},
		{"external n1", "there is already a node or an external host n1"},
		{"external e2 net=red", `unknown network "red"`},
		{"label n1 a=b", `found "n1", allowed: node/N; did you mean "node/n1"?`},
		{"annotate n2 a=b", `found "n2", allowed: node/N; did you mean "node/n2"?`},
		{"label n3 a=b", `found "n3", allowed: node/N`},
		{"label node/n1 a", `found "a", allowed: KEY=VALUE, KEY-`},
		{"nodes n3", "there is a nodes command before"},
		{"option ip=dual", "must come before nodes"},
		{"option ip=v5", `ip: found "v5"`},
		{"option ipp=v4", `unknown option "ipp"; did you mean "ip"?`},
		{"backends sim", "must be the first command"},
		{"backends simm", `found "simm"; did you mean "sim"?`},
		{"[smi] settle", `prefix [smi]: found "smi"; did you mean "sim"?`},
		{"[sim]", "a command is missing after [sim]"},
		{"[sim] nodes a", "concerns the whole file"},
		{"}", "} without a for"},
		{"for i in 1..3 {", "for i: the closing } is missing"},
		{"for i in 3..1 {\n}", `found "3..1", allowed: A..B with A not above B`},
		{"for i 1..3 {\n}", "for: usage: for VAR in"},
		{"for i in 1..2 {\nfor i in 1..2 {\n}\n}", "f:4: for: the enclosing loop already has a variable i"},
		{"for i in 1..2 {\nfor j in 1..2 {\nfor k in 1..2 {\n}\n}\n}", "loops nest at most 2 deep"},
		{"for i in 1..1000 {\nfor j in 1..1000 {\nsettle\n}\n}", "allowed are 100000"},
		{"for i in 1..3 {\npod default/p$i node=n$i\n}", `f:4: pod: unknown node "n3"; did you mean "n1"? allowed: n1, n2 (with i=3)`},
		{"for i in 1..3 {\nprobe default/p -> ext count=$i as=x\n}", "as=x: the name is taken by an earlier line (with i=2)"},
		{"for i in 0..3 {\nprobe default/p -> ext count=$i\n}", `count: found "0", allowed: 1 to 1000000 (with i=0)`},
	} {
		_, err := Parse("f", []byte(start+c.line+"\n-- egress.yaml --\n"))
		if err == nil {
			t.Errorf("%s\n\tno error, want %s", c.line, c.want)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n\tgot  %s\n\twant %s", c.line, err, c.want)
		}
	}
}

// A name can be used by lines of different backends, and again after it was closed.
func TestNames(t *testing.T) {
	const start = "nodes n1\nexternal ext\n"
	for text, ok := range map[string]bool{
		"[sim] open c default/a -> ext\n[!sim] open c default/b -> ext\nsend c": true,
		"[sim] open c default/a -> ext\nopen c default/b -> ext":                false,
		"open c default/a -> ext\nclose c\nopen c default/a -> ext\nsend c":     true,
		"open c default/a -> ext\nclose c\nsend c":                              false,
		"stream c default/a -> ext every=1s\nsend c":                            false,
		"open c default/a -> ext\nclose c\nprobe backend/c -> ext":              true,
		"[sim] open c default/a -> ext\nsend c":                                 false,
		"for i in 1..2 {\nopen c$i default/a -> ext\n}\nsend c2":                true,
	} {
		if _, err := Parse("f", []byte(start+text)); (err == nil) != ok {
			t.Errorf("%s\n\terror %v, want ok %t", text, err, ok)
		}
	}
}

// All mistakes of a file are reported, in the order of the lines, but not more than MaxErrors.
func TestManyErrors(t *testing.T) {
	_, err := Parse("f", []byte("nodes n1\nbogus\nsettle within=x\npod default/a node=n1 ready=x serve=y"))
	var list Errors
	if !errors.As(err, &list) || len(list) != 4 || list[0].Line != 2 || list[1].Line != 3 || list[3].Line != 4 {
		t.Errorf("got %v", err)
	}
	text := "nodes n1\n"
	for i := range 50 {
		text += fmt.Sprintf("bogus%d\n", i)
	}
	_, err = Parse("f", []byte(text))
	if !errors.As(err, &list) || len(list) != MaxErrors+1 || !strings.HasSuffix(err.Error(), "and 30 more errors") {
		t.Errorf("got %d: %v", len(list), err)
	}
}

// A mistake that makes many lines wrong is told once.
func TestOneErrorForManyLines(t *testing.T) {
	const nodes = "nodes n1\n"
	for text, want := range map[string]string{
		nodes + "apply web.yaml\n-- web.yaml\napiVersion: v1\nkind: Service\n-- b.yaml --\n": `f:3: found "-- web.yaml", allowed before a file: -- NAME --, at the start of the line`,
		nodes + "for i in 1..2 {\n  -- web.yaml --\napiVersion: v1\n":                        `f:3: found "-- web.yaml --", allowed before a file: -- NAME --, at the start of the line`,
		nodes + "\x7fELF\x02\x00\n\x80\n\x81\n\x82\n":                                        "f:2: found a byte 0: this is no text in UTF-8",
	} {
		if _, err := Parse("f", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q\n\tgot  %v\n\twant %s", text, err, want)
		}
	}
}

// What is right in its parts can be wrong when it is built.
func TestCheckBuilt(t *testing.T) {
	for _, f := range []*File{
		{Lines: []Line{{Step: Nodes{Names: []string{"n1"}}}, {Step: Pod{Namespace: "a", Name: "b", Node: NodeRef{Name: "n2"}}}}},
		{Lines: []Line{{Step: Apply{File: "x"}}}},
		{Files: []Manifest{{Name: "a"}, {Name: "a"}}},
		{Files: []Manifest{{Name: "a", Data: []byte("x\n-- b --\n")}}},
		{Lines: []Line{{Loop: &Loop{Var: "i", From: 2, To: 1}}}},
	} {
		if f.Check() == nil {
			t.Errorf("no error for\n%s", f.Format())
		}
	}
}
