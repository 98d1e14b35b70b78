// Package cli is the command line of towtank: one file for each command.
package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"towtank/internal/spelling"
	"towtank/scenarios"
)

// Exit statuses.
const (
	exitOK     = 0 // all expectations and invariants held
	exitFailed = 1 // one did not
	exitWrong  = 2 // the file or the call is wrong
	exitCannot = 3 // this backend cannot run here, or every file was skipped
)

// status is an error that carries an exit status. Its text, if any, was not yet shown.
type status struct {
	code int
	err  error
}

// Error implements error.
func (s *status) Error() string {
	if s.err == nil {
		return fmt.Sprintf("exit status %d", s.code)
	}
	return s.err.Error()
}

// Unwrap implements errors.Unwrap.
func (s *status) Unwrap() error { return s.err }

func wrongf(format string, args ...any) error {
	return &status{exitWrong, fmt.Errorf(format, args...)}
}

// wrongCall is the error of a file that cannot be run as it is written. Its text begins with file and
// line.
func wrongCall(err error) error {
	return wrongf("%s", strings.TrimPrefix(err.Error(), scenarios.ErrCall.Error()+": "))
}

// terminal is where a command reads and writes.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	// color: out is a terminal that may be coloured; live: err is a terminal, where a line may be
	// overwritten.
	color, live bool
}

// collectAt is Go's GOGC here, in percent, unless the environment has one. A tank makes much garbage and keeps little, and
// lives for seconds: its memory is cheaper than the collector's time.
const collectAt = 400

// Main runs the command line and returns the exit status.
func Main(args []string, in io.Reader, out, errw io.Writer) int {
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(collectAt))
	}
	t := &terminal{in: in, out: out, err: errw, color: isTerminal(out) && os.Getenv("NO_COLOR") == "", live: isTerminal(errw)}
	result := &output{w: out}
	t.out = result
	root := newRoot(t)
	root.SetArgs(withoutArrow(args))
	root.SetIn(in)
	root.SetOut(result)
	root.SetErr(errw)
	err := root.Execute()
	if result.err != nil && (err == nil || !strings.Contains(err.Error(), result.err.Error())) {
		// What could not be told is no result, whatever it was.
		err = &status{exitWrong, fmt.Errorf("writing results: %w", result.err)}
	}
	if err == nil {
		return exitOK
	}
	var s *status
	if !errors.As(err, &s) {
		s = &status{exitWrong, err} // of cobra: a flag or an argument
	}
	if s.err != nil {
		fmt.Fprintln(errw, s.err)
	}
	return s.code
}

// output remembers that it could not be written to: who only looks at the exit status must not take an
// account that nobody got for a success.
type output struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// isTerminal reports whether w is a character device.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// withoutArrow drops the -> between two addresses, which would be read as an option.
func withoutArrow(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "->" })
}

func newRoot(t *terminal) *cobra.Command {
	root := &cobra.Command{
		Use:   "towtank",
		Short: "Run scenarios in a simulated cluster, and see where each packet goes",
		Long: `towtank tests a Kubernetes node-network agent for Open vSwitch in a tank: a deterministic,
simulated cluster of nodes, switches and hosts. A scenario says what happens to the cluster and what a
packet must then experience.

A result is repeated by its seed: the same file and seed give the same run, event by event.`,
		Example: `  towtank run scenarios/                                   every scenario below a directory
  towtank run -v --seed 7 scenarios/tour/first.scenario    one, with every step
  towtank trace scenarios/tour/first.scenario default/client ext:8080
  towtank dump scenarios/tour/first.scenario n1 switch
  towtank language                                         the commands of a scenario`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
	}
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return wrongf("towtank: unknown command %q%s; known: %s", args[0], spelling.Hint(args[0], names(root)), strings.Join(names(root), ", "))
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return wrongf("%s: %s; see %s --help", cmd.CommandPath(), flagError(cmd, err), cmd.CommandPath())
	})
	root.AddCommand(newRun(t), newTrace(t), newDump(t), newFmt(t), newLanguage(t), newFuzz(t), newReplay(t), newShrink(t), newCompare(t))
	return root
}

// badValue is how cobra tells of a value that it cannot read, with what strconv says behind it.
var badValue = regexp.MustCompile(`^invalid argument (".*") for "(?:-\w, )?--([^"]+)" flag: `)

// flagError says what is wrong with an option in the words of the other errors.
func flagError(c *cobra.Command, err error) string {
	m := badValue.FindStringSubmatch(err.Error())
	if m == nil {
		return err.Error()
	}
	allowed := map[string]string{
		"uint64": fmt.Sprintf("a number, 0 to %d", uint64(math.MaxUint64)), "int": "a number", "duration": "a duration, such as 30s", "bool": "true, false",
	}[c.Flag(m[2]).Value.Type()]
	if allowed == "" {
		return err.Error()
	}
	return fmt.Sprintf("--%s: found %s, allowed: %s", m[2], m[1], allowed)
}

func names(root *cobra.Command) []string {
	var out []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			out = append(out, c.Name())
		}
	}
	return out
}
