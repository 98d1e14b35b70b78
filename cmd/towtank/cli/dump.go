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
Without a word: all three. NODE may be owner/IP.`,
		Example: `  towtank dump scenarios/tour/first.scenario n1
  towtank dump scenarios/tour/first.scenario n1 switch | grep table=11
  towtank dump --line 9 scenarios/tour/first.scenario owner/172.18.0.50 host`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 3 {
				return wrongf("%s: usage: towtank %s", cmd.CommandPath(), cmd.Use)
			}
			return wantWords(cmd, args, 2)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := t.look(&o, args[0], "dump "+strings.Join(args[1:], " "))
			if err != nil || o.json {
				return err
			}
			if s.Outcome == scenarios.Fail {
				return wrongf("%s: %s", s.Text, s.Text2)
			}
			_, err = fmt.Fprint(t.out, s.Text2)
			return err
		},
	}
	c.Flags().Uint64Var(&o.seed, "seed", 1, "decides every order and every chance of the run")
	c.Flags().IntVar(&o.line, "line", 0, "look after this line of the file, not at its end")
	c.Flags().BoolVar(&o.json, "json", false, "write the step as a JSON object, as towtank run --json does")
	return c
}
