package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"towtank/scenarios"
)

// towtank dump scenarios/tour/first.scenario n1 switch
func newDump(t *terminal) *cobra.Command {
	o := lookOptions{}
	c := &cobra.Command{
		Use:   "dump FILE NODE [switch|host|store]",
		Short: "Run a scenario, then show what is on a node",
		Long: `Run a scenario and then print what is on a node, in the words of the tools: flows, groups, meters
and ports as ovs-ofctl does (switch), links, addresses, routes, iptables and ipsets as ip,
iptables-save and ipset do (host), and what the agent wants with the units that want it (store).
Without a word: all three. NODE may be owner/IP.

Exit status: 0 it was shown; 2 the file or the call is wrong, also if it was shown but the API refused a change of the file.`,
		Example: `  towtank dump scenarios/tour/first.scenario n1
  towtank dump scenarios/tour/first.scenario n1 switch | grep table=33
  towtank dump --line 16 scenarios/tour/first.scenario owner/172.18.0.50 host`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 3 {
				return wrongf("%s: usage: towtank %s", cmd.CommandPath(), cmd.Use)
			}
			return wantWords(cmd, args, 2)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkLine(cmd); err != nil {
				return err
			}
			return t.look(&o, args[0], "dump "+strings.Join(args[1:], " "), func(s scenarios.Step) error {
				if s.Outcome == scenarios.Fail {
					return wrongf("%s: %s", s.Text, s.Text2)
				}
				_, err := fmt.Fprint(t.out, s.Text2)
				return err
			})
		},
	}
	o.flags(c)
	return c
}
