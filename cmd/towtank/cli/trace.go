package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"towtank/scenarios"
	"towtank/scenarios/report"
)

// towtank trace scenarios/tour/first.scenario default/client svc/default/web:80
func newTrace(t *terminal) *cobra.Command {
	o, all := lookOptions{}, false
	c := &cobra.Command{
		Use:   "trace FILE FROM TO[:PORT[/PROTO]] [sport=N] [size=N] [df] [family=v4|v6] [next=N]",
		Short: "Run a scenario, then explain where one packet goes",
		Long: `Run a scenario and then send one packet: every table, flow, rule and route that it meets, node by
node, with what was changed and the Kubernetes object that each flow is there for. The last line is the
verdict; of a drop it says where and why.

FROM and TO are written as in the file's probes: default/client, svc/default/web:80, ext, node/n1,
lb/default/web, [fd00::1]:80, ext/icmp. The arrow of a probe may stand between them if it is quoted
('->'): the shell would take > for a redirection.

Exit status: 0 whatever became of the packet; 2 the file or the call is wrong, also if the packet is explained but the API
refused a change of the file.`,
		Example: `  towtank trace scenarios/tour/first.scenario default/client ext
  towtank trace scenarios/tour/first.scenario default/client svc/default/web sport=40001
  towtank trace --line 16 scenarios/tour/first.scenario default/client svc/default/web:80/tcp
  towtank trace scenarios/tour/first.scenario 'default/client -> ext:53/udp'`,
		Args: func(cmd *cobra.Command, args []string) error { return wantWords(cmd, traceWords(args), 3) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkLine(cmd); err != nil {
				return err
			}
			return t.trace(&o, all, traceWords(args))
		},
	}
	o.flags(c)
	c.Flags().BoolVar(&all, "all", false, "show the rest of the exchange after the reply, too")
	return c
}

// traceWords splits the words of arguments such as 'FROM -> TO', and drops the arrow.
func traceWords(args []string) []string {
	if len(args) == 0 {
		return args
	}
	words := []string{args[0]}
	for _, a := range args[1:] {
		words = append(words, strings.Fields(a)...)
	}
	return slices.DeleteFunc(words, func(w string) bool { return w == "->" })
}

// wantWords wants n arguments at least.
func wantWords(cmd *cobra.Command, args []string, n int) error {
	if slices.Contains(args, "-") && len(args) <= n {
		return wrongf("%s: found - where an address should be: did the shell take the > of -> for a redirection? Leave the arrow out, or quote it", cmd.CommandPath())
	}
	if len(args) < n {
		return wrongf("%s: usage: towtank %s", cmd.CommandPath(), cmd.Use)
	}
	return nil
}

func (t *terminal) trace(o *lookOptions, all bool, words []string) error {
	command := fmt.Sprintf("trace %s -> %s", words[1], strings.Join(words[2:], " "))
	return t.look(o, words[0], command, func(s scenarios.Step) error {
		if s.Outcome == scenarios.Fail { // an address that is not there
			return wrongf("%s: %s", command, s.Text2)
		}
		fmt.Fprintln(t.out, s.Text)
		report.Path{All: all, Drop: s.Got.Verdict == "drop", Mark: report.Mark(t.color)}.Write(t.out, s.Trace)
		fmt.Fprintln(t.out, report.Verdict(s))
		return nil
	})
}
