package fuzz

import (
	"fmt"
	"regexp"
	"strings"

	"towtank/scenarios"
)

// Finding is something that does not hold.
type Finding struct {
	// What is an invariant, an expectation, a settle, a panic, or the model itself.
	What string `json:"what"`
	// About tells findings of one What apart: the sort of object, the text without names and numbers.
	About  string `json:"about"`
	Node   string `json:"node,omitempty"`
	Line   int    `json:"line"`
	Detail string `json:"detail"`
	// Want is what the reference model expects of the probe that failed, as a scenario writes it.
	Want string `json:"want,omitempty"`
}

// Same reports whether two findings are of one sort: what fails, and about what kind of object.
func (f *Finding) Same(o *Finding) bool { return f.Key() == o.Key() }

// Key names the sort of a finding.
func (f *Finding) Key() string { return f.What + ": " + f.About }

// String is the finding in one line.
func (f *Finding) String() string {
	first, _, more := strings.Cut(f.Detail, "\n")
	if more {
		first += " …"
	}
	if f.Node != "" {
		return fmt.Sprintf("%s on %s: %s", f.What, f.Node, first)
	}
	return f.What + ": " + first
}

// stepFinding is the finding of a step that failed.
func stepFinding(s scenarios.Step) Finding {
	word, _, _ := strings.Cut(s.Text, " ")
	f := Finding{What: "expectation of " + word, About: class(s.Text2), Line: s.Line, Detail: strings.TrimSpace(s.Text2)}
	switch {
	case strings.Contains(s.Text2, "in the model: "):
		f.What = "model"
	case word == "settle" || word == "advance":
		f.What = word
	case s.Got.String() != "":
		f.Detail += "\ngot " + s.Got.String()
	}
	return f
}

// maxClass bounds the text that tells findings apart.
const maxClass = 160

var (
	quoted  = regexp.MustCompile(`"[^"]*"`)
	hex     = regexp.MustCompile(`\b0x[0-9a-f]+(/0x[0-9a-f]+)?\b`)
	macs    = regexp.MustCompile(`\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b`)
	v6      = regexp.MustCompile(`\[?\b[0-9a-f]{1,4}:[0-9a-f:]*:[0-9a-f]*\b\]?(/\d+)?(:\d+)?|::\b`)
	v4      = regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+(/\d+)?(:\d+)?\b`)
	keys    = regexp.MustCompile(`\b(default|shop|canary)/[a-z0-9-]+`)
	names   = regexp.MustCompile(`\b(n|e|s|p|c|cni|pool-|kubelet-|vext|ext|node/n)[a-z]?\d*\b`)
	objects = regexp.MustCompile(`\b(flow|group|meter|port|link|address|route|rule|neighbour|iptables|ipset|ipset-entry|sysctl|health) `)
	numbers = regexp.MustCompile(`\d+`)
)

// class returns a text without what differs between findings of one sort: names, addresses, numbers. Of a
// list of objects their kind is kept.
func class(detail string) string {
	lines := strings.Split(strings.TrimSpace(detail), "\n")
	text := lines[0]
	for _, l := range lines[1:] {
		if m := objects.FindString(l); m != "" {
			text += " [" + strings.TrimSpace(m) + "]"
			break
		}
	}
	for _, c := range []struct {
		re *regexp.Regexp
		by string
	}{{quoted, "Q"}, {macs, "M"}, {v6, "A"}, {v4, "A"}, {hex, "X"}, {keys, "K"}, {names, "N"}, {numbers, "#"}} {
		text = c.re.ReplaceAllString(text, c.by)
	}
	if len(text) > maxClass {
		text = text[:maxClass]
	}
	return strings.TrimSpace(text)
}
