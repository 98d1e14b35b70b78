package fuzz

import (
	"fmt"
	"strings"

	"towtank/internal/spelling"
)

// Config is what scenarios are drawn with.
type Config struct {
	Steps   int    // of a scenario, about: from MinSteps to MaxSteps
	Nodes   int    // from 1 to MaxNodes
	Profile string // a name of Profiles
}

// The bounds of a Config.
const (
	MinSteps = 30
	MaxSteps = 20000
	MaxNodes = 9
)

// DefaultConfig is what is drawn if nothing else is asked for.
func DefaultConfig() Config { return Config{Steps: 300, Nodes: 3, Profile: "all"} }

// Check returns what is wrong with a configuration, with what is allowed.
func (c Config) Check() error { return c.check() }

func (c Config) check() error {
	if c.Steps < MinSteps || c.Steps > MaxSteps {
		return fmt.Errorf("steps: found %d, allowed %d to %d", c.Steps, MinSteps, MaxSteps)
	}
	if c.Nodes < 1 || c.Nodes > MaxNodes {
		return fmt.Errorf("nodes: found %d, allowed 1 to %d", c.Nodes, MaxNodes)
	}
	if profiles[c.Profile] == nil {
		return fmt.Errorf("profile: found %q%s; known: %s", c.Profile, spelling.Hint(c.Profile, Profiles()), strings.Join(Profiles(), ", "))
	}
	return nil
}

// Args returns the options of the command line for a configuration, "" for the default.
func (c Config) Args() string {
	d, out := DefaultConfig(), ""
	if c.Steps != d.Steps {
		out += fmt.Sprintf(" --steps %d", c.Steps)
	}
	if c.Nodes != d.Nodes {
		out += fmt.Sprintf(" --nodes %d", c.Nodes)
	}
	if c.Profile != d.Profile {
		out += " --profile " + c.Profile
	}
	return out
}
