package agent

import (
	"slices"
	"strings"
)

// abouts is a concern that can say more of its units than their names do.
type abouts interface {
	// About returns the names of the Egresses for which a unit is there, sorted.
	About(unit string) []string
}

// About returns the Kubernetes objects for which a unit is there as things are now, where its name alone
// does not say it: pod/NAMESPACE/NAME of a sandbox, egress/NAME of an Egress IP and of a Pod's Egress.
func (l *Loop) About(unit string) []string {
	kind, rest, _ := strings.Cut(unit, "/")
	var out []string
	switch kind {
	case "sandbox":
		if s := l.env.Sandboxes[unit]; s != nil {
			out = append(out, "pod/"+s.PodKey())
		}
	case "podegress":
		out = append(out, "pod/"+rest)
	}
	if c, ok := l.byKind[kind].(abouts); ok {
		for _, name := range c.About(unit) {
			out = append(out, "egress/"+name)
		}
	}
	return slices.Compact(out)
}
