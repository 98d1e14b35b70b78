package scenarios_test

import (
	"strings"
	"testing"

	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/scenarios/report"
)

// said runs the text of a scenario and returns everything that people are told about it.
func said(text string) string {
	f, err := lang.Parse("x.scenario", []byte(text))
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	_, err = scenarios.Run(f, scenarios.Options{Seed: 1}, &report.Text{W: &b, Max: 5})
	if err != nil {
		b.WriteString(err.Error())
	}
	return b.String()
}

// Small scenarios, each with what must be said about it. want begins with PASS for one in which everything holds.
func TestSaid(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"who asks for an echo, and by which way", `
nodes n1 n2
external ext
pod default/a node=n1
pod default/b node=n2 serve=9999/tcp
settle
probe default/a -> default/b/icmp expect ok source=default/a to=default/b via=n1 reply-via=n2 backend=default/b
probe default/a -> ext/icmp expect ok source=node/n1 via=n1 reply-via=ext backend=ext
probe default/a -> default/b expect reject via=n1 reply-via=n2
probe default/a -> node/n1:99 expect reject via=n1
probe ext -> node/n2/icmp expect ok source=ext via=ext
`, "PASS"},
		{"a wrong source of an echo", `
nodes n1 n2
pod default/a node=n1
pod default/b node=n2
settle
probe default/a -> default/b/icmp expect ok source=node/n1
`, "want source=node/n1, got 10.10.1.2"},
		{"clients by their address", `
nodes n1 n2
external ext
pod default/a node=n1
pod default/w node=n2
settle
probe gateway/n1 -> default/w expect ok source=gateway/n1 via=n1
probe 172.18.0.101 -> node/n1 expect ok source=ext via=ext
probe 10.10.1.2 -> default/w expect ok source=default/a via=n1
probe 172.18.0.11 -> ext expect ok source=node/n1 via=n1
probe 10.10.1.1 -> default/w expect ok source=gateway/n1
`, "PASS"},
		{"a client that nobody is", "nodes n1\nexternal ext\nprobe 10.10.1.77 -> ext expect ok\n", "10.10.1.77: no Pod, external host or node has this address now"},
		{"loss between the owners of addresses", `
nodes n1 n2
pod default/a node=n1
pod default/w node=n2
settle
loss owner/172.18.0.11 owner/172.18.0.12 100
probe default/a -> default/w expect drop
`, "PASS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := said(c.text)
			if c.want == "PASS" && !strings.HasPrefix(got, "PASS") || !strings.Contains(got, c.want) {
				t.Errorf("%s\nwant %q; said:\n%s", c.text, c.want, got)
			}
		})
	}
}
