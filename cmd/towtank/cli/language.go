package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"towtank/scenarios/lang"
)

// towtank language
func newLanguage(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "language",
		Short:   "List the commands of a scenario file",
		Example: "  towtank language | less",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(t.out, lang.Usage())
			return err
		},
	}
}
