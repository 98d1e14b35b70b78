package scenarios_test

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/scenarios/report"
	"towtank/scenarios/spec"
)

// variants are options under which the Service scenarios must hold, too.
var variants = []struct{ key, value string }{
	{"traffic", "noEncap"}, {"traffic", "hybrid"}, {"tunnel", "vxlan"}, {"ip", "dual"}, {"loadBalancerMode", "dsr"},
}

// tunnelled are scenarios that say what is so in tunnels only: source addresses, direct server return, an
// Egress IP on another node.
var tunnelled = []string{
	"S-020-nodeport-source", "S-073-direct-server-return", "S-074-direct-server-return-and-local",
	"S-090-service-with-external-endpoint-and-egress",
}

// What an Egress does for its Pods does not depend on who finds them: the agents by its selectors, or the controller,
// whose groups the agents read.
func TestEgressesByGroups(t *testing.T) {
	files, err := filepath.Glob("egress/*.scenario")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios of Egresses: %v", err)
	}
	for _, name := range files {
		if strings.HasPrefix(filepath.Base(name), "E-010-") {
			continue // it counts writes: the Egress and its group go in two events, and may go in two Changes
		}
		under(t, name, "membership", "egressgroup")
	}
}

// handedOver counts every packet while an address goes from one Service to another. With direct server return two
// nodes serve it, and what comes between their two Changes is lost (docs/limits.md).
const handedOver = "S-036-two-services-one-address"

// What a Service does for its clients does not depend on how nodes are connected, on another address
// family beside its own, or on who answers the client. So its scenarios run under all of these options.
func TestServicesUnderOtherOptions(t *testing.T) {
	files, err := filepath.Glob("services/*.scenario")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios of Services: %v", err)
	}
	for _, name := range files {
		base := strings.TrimSuffix(path.Base(filepath.ToSlash(name)), ".scenario")
		for _, v := range variants {
			if v.key == "traffic" && slices.Contains(tunnelled, base) {
				continue
			}
			if v.value == "dsr" && base == handedOver {
				continue
			}
			under(t, name, v.key, v.value)
		}
	}
}

// under runs a file with an option that it does not set itself.
func under(t *testing.T, name, key, value string) {
	f := spec.File(t, name)
	if sets(f, key) {
		return
	}
	base := strings.TrimSuffix(path.Base(filepath.ToSlash(name)), ".scenario")
	t.Run(fmt.Sprintf("%s/%s=%s", base, key, value), func(t *testing.T) {
		t.Parallel()
		option := lang.Line{Step: lang.Option{Settings: []lang.Setting{{Key: key, Value: value}}}}
		f.Lines = slices.Insert(f.Lines, nodesAt(f), option)
		var b bytes.Buffer
		end, err := scenarios.Run(f, scenarios.Options{Seed: 1}, &report.Text{W: &b, Max: 5})
		if err != nil || end.Outcome == scenarios.Fail {
			t.Errorf("%s%v", b.String(), err)
		}
	})
}

// sets reports whether a file sets an option itself.
func sets(f *lang.File, key string) bool {
	for i := range f.Lines {
		if o, ok := f.Lines[i].Step.(lang.Option); ok && slices.ContainsFunc(o.Settings, func(s lang.Setting) bool { return s.Key == key }) {
			return true
		}
	}
	return false
}

// nodesAt is the index of the line that makes the nodes.
func nodesAt(f *lang.File) int {
	return slices.IndexFunc(f.Lines, func(l lang.Line) bool { _, ok := l.Step.(lang.Nodes); return ok })
}
