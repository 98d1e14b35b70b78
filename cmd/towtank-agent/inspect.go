//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"towtank/agent/shell"
)

// inspections are the commands that ask the agent of this node.
func inspections() []*cobra.Command {
	var socket string
	var asJSON, ready bool
	on := func(c *cobra.Command) *cobra.Command {
		c.Args = cobra.NoArgs
		c.Flags().StringVar(&socket, "status-socket", shell.DefaultStatusSocket, "socket on which the agent answers")
		c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
		return c
	}
	status := on(&cobra.Command{
		Use: "status", Short: "Print what the agent of this node is busy with",
		Long: "Print what the agent of this node is busy with. Exit status 1 if it does not answer, with --ready also if it is not ready.",
		RunE: func(c *cobra.Command, _ []string) error {
			var r shell.Report
			if err := ask(c.Context(), socket, "/status", &r); err != nil {
				return err
			}
			if err := show(c.OutOrStdout(), asJSON, r, r.Print); err != nil {
				return err
			}
			if ready && !r.Ready {
				return errors.New("the agent is not ready")
			}
			return nil
		},
	})
	status.Flags().BoolVar(&ready, "ready", false, "exit with 1 if the agent is not ready")
	store := on(&cobra.Command{
		Use: "store", Short: "Print what the agent of this node wants on it, by Kubernetes object",
		RunE: func(c *cobra.Command, _ []string) error {
			var units []shell.Unit
			if err := ask(c.Context(), socket, "/store", &units); err != nil {
				return err
			}
			return show(c.OutOrStdout(), asJSON, units, func(w io.Writer) error { return printUnits(w, units) })
		},
	})
	return []*cobra.Command{status, store}
}

// askLimit bounds how long an answer may take.
const askLimit = 10 * time.Second

func ask(ctx context.Context, socket, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return shell.Ask(ctx, socket, path, into)
}

func show(w io.Writer, asJSON bool, v any, text func(io.Writer) error) error {
	if !asJSON {
		return text(w)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func printUnits(w io.Writer, units []shell.Unit) error {
	for _, u := range units {
		title := u.Name
		for _, a := range u.About {
			title += " " + a
		}
		if _, err := fmt.Fprintln(w, title); err != nil {
			return err
		}
		for _, o := range u.Objects {
			state := "pending"
			if o.Known {
				state = "known"
			}
			fmt.Fprintf(w, "  %-7s %-8s %s\n", state, o.Kind, o.Text)
		}
		for _, k := range u.Waiting {
			fmt.Fprintf(w, "  waiting %s\n", k)
		}
	}
	return nil
}
