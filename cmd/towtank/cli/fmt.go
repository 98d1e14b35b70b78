package cli

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"towtank/scenarios/lang"
)

// fmtOptions are the options of towtank fmt.
type fmtOptions struct{ write, list, diff, check bool }

// towtank fmt -l -w scenarios/
func newFmt(t *terminal) *cobra.Command {
	o := fmtOptions{}
	c := &cobra.Command{
		Use:   "fmt [-l] [-d] [-w] [--check] [FILE|DIR|-...]",
		Short: "Print scenarios in the one way they are written",
		Long: `Print scenarios in canonical text: one blank between words, options in the order of the
documentation, two blanks of indentation in loops. Comments and manifests stay as they are. Without a
file, or with -, the standard input is printed.`,
		Example: `  towtank fmt -w scenarios/            write the files that differ
  towtank fmt -l scenarios/            list them
  towtank fmt -d scenarios/            show what would change
  towtank fmt --check scenarios/       list them, and exit with status 1 if there are any`,
		RunE: func(_ *cobra.Command, args []string) error { return t.format(&o, args) },
	}
	f := c.Flags()
	f.BoolVarP(&o.write, "write", "w", false, "write the result to the file")
	f.BoolVarP(&o.list, "list", "l", false, "list the files that differ")
	f.BoolVarP(&o.diff, "diff", "d", false, "show the differences")
	f.BoolVar(&o.check, "check", false, "as -l; the exit status is 1 if a file differs")
	return c
}

func (t *terminal) format(o *fmtOptions, args []string) error {
	if len(args) == 0 {
		args = []string{stdin}
	}
	paths, err := findFiles(args)
	if err != nil {
		return err
	}
	wrong, differ := false, false
	for _, path := range paths {
		differs, err := t.formatFile(o, path)
		if err != nil {
			wrong = true
			fmt.Fprintln(t.err, err)
		}
		differ = differ || differs
	}
	switch {
	case wrong:
		return &status{code: exitWrong}
	case differ && o.check:
		return &status{code: exitFailed}
	}
	return nil
}

func (t *terminal) formatFile(o *fmtOptions, path string) (differs bool, err error) {
	name, data, err := t.read(path)
	if err != nil {
		return false, err
	}
	f, err := lang.Parse(name, data)
	if err != nil {
		return false, err
	}
	text := f.Format()
	differs = !bytes.Equal(text, data)
	if o.check || o.list {
		if differs {
			fmt.Fprintln(t.out, name)
		}
	}
	if o.diff && differs {
		fmt.Fprintf(t.out, "--- %s\n+++ %s, formatted\n", name, name)
		for _, line := range diff(lines(data), lines(text)) {
			fmt.Fprintln(t.out, line)
		}
	}
	switch {
	case o.write && path == stdin:
		return differs, fmt.Errorf("-w: the standard input cannot be written")
	case o.write && differs:
		return differs, writeBack(path, text)
	case !o.write && !o.check && !o.list && !o.diff:
		_, err = t.out.Write(text)
	}
	return differs, err
}

// writeBack replaces a file at once, so that no half of it is ever there.
func writeBack(path string, text []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	beside := path + ".formatted"
	if err := os.WriteFile(beside, text, info.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(beside, path)
}
