package report

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"towtank/scenarios"
)

// Path is how the way of a packet is written:
//
//	request
//	  n1
//	    table 33 ServiceLB    priority=200,tcp,nw_dst=10.96.0.2,… actions=…   ← Service default/web
//	    nat POSTROUTING       -A TOWTANK-POSTROUTING … -j SNAT …
//	✗   route                 no route to 10.10.9.9
//	reply
//	  …
//
// One heading for each device, one line for each table, rule or hop.
type Path struct {
	// Brief leaves out the tables that only lead to the next one.
	Brief bool
	// All shows what comes after the reply (the rest of a handshake), too.
	All bool
	// Drop says that the exchange failed by silence: what comes after the reply is shown if something
	// is dropped there.
	Drop bool
	// Mark makes a drop stand out; it may be nil.
	Mark func(string) string
}

// Write writes the lines of a trace.
func (p Path) Write(w io.Writer, lines []scenarios.TraceLine) {
	mark := p.Mark
	if mark == nil {
		mark = func(s string) string { return s }
	}
	wide := 0
	for _, l := range lines {
		wide = max(wide, utf8.RuneCountInString(l.Where))
	}
	wide = min(wide, 28)
	for i, leg := range legs(lines) {
		if i >= len(legNames)-1 && !p.All && !(p.Drop && drops(leg)) {
			fmt.Fprintf(w, "  %s: %d lines\n", legNames[len(legNames)-1], len(leg))
			return
		}
		fmt.Fprintf(w, "  %s\n", legNames[min(i, len(legNames)-1)])
		node := ""
		for _, l := range leg {
			if p.Brief && !l.Drop && passing.MatchString(short(l)) {
				continue
			}
			if l.Node != node {
				node = l.Node
				fmt.Fprintf(w, "    %s\n", node)
			}
			begin, text := "     ", short(l)
			if l.Drop {
				begin, text = mark("    ✗"), mark(text)
			}
			fmt.Fprintf(w, "%s %s%s  %s\n", begin, l.Where, strings.Repeat(" ", max(0, wide-utf8.RuneCountInString(l.Where))), text)
		}
	}
}

var legNames = []string{"request", "reply", "the rest of the exchange"}

// delivered is how a line begins that ends the way of a packet: a host took it in. Tunnel packets are
// taken in and go on.
const delivered = "delivered: "

// legs divides a trace where a packet reached a host: request, reply, and what follows.
func legs(lines []scenarios.TraceLine) [][]scenarios.TraceLine {
	var out [][]scenarios.TraceLine
	var leg []scenarios.TraceLine
	for _, l := range lines {
		leg = append(leg, l)
		if text, ok := strings.CutPrefix(l.Text, delivered); ok && !strings.Contains(text, "{") && len(out) < len(legNames)-1 {
			out, leg = append(out, leg), nil
		}
	}
	if len(leg) > 0 {
		out = append(out, leg)
	}
	return out
}

func drops(lines []scenarios.TraceLine) bool {
	for _, l := range lines {
		if l.Drop {
			return true
		}
	}
	return false
}

var cookieAndTable = regexp.MustCompile(`^cookie=0x[0-9a-f]+, table=\d+, `)

// passing are the tables that a packet only passes through.
var passing = regexp.MustCompile(`^(miss|priority=0 actions=goto_table:\d+)$`)

// short is the text of a line without what other columns say, with the owner unless that is the node
// itself.
func short(l scenarios.TraceLine) string {
	text := cookieAndTable.ReplaceAllString(l.Text, "")
	if l.Owner != "" && l.Owner != "host" {
		text += "  ← " + l.Owner
	}
	return text
}

// Verdict says in one line what became of a traced packet.
func Verdict(s scenarios.Step) string {
	if s.Got.Verdict == "" {
		return "verdict: unknown"
	}
	text := "verdict: " + s.Got.String()
	// The last drop is the one that decided: copies that end on the way (a flood) come before.
	for i := len(s.Trace) - 1; i >= 0 && s.Got.Verdict == "drop"; i-- {
		if l := s.Trace[i]; l.Drop {
			// A flow that drops says in the line before what it matched.
			if before := max(i-1, 0); l.Text == "actions=drop" && s.Trace[before].Where == l.Where && s.Trace[before].Node == l.Node {
				l = s.Trace[before]
			}
			return fmt.Sprintf("%s, on %s, %s: %s", text, l.Node, l.Where, short(l))
		}
	}
	return text
}
