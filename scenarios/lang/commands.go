package lang

import (
	"fmt"
	"slices"
	"strings"
)

// command is an entry of the language: how it is written, what it means, how it is parsed.
type command struct {
	name    string
	usage   string
	meaning string
	parse   func(*args) Step
}

// commandGroup is the commands of one topic, in the order of the documentation.
type commandGroup struct {
	title    string
	commands []command
}

// groups returns the whole language. It is a function, because the commands' parsers refer to it.
func groups() []commandGroup {
	return []commandGroup{
		{"Topology", topologyCommands},
		{"Kubernetes and the container runtime", kubeCommands},
		{"Time", timeCommands},
		{"Traffic", trafficCommands},
		{"Faults", faultCommands},
		{"Looking and asserting", lookingCommands},
	}
}

var byName map[string]*command

func init() {
	byName = make(map[string]*command)
	for _, g := range groups() {
		for i := range g.commands {
			byName[g.commands[i].name] = &g.commands[i]
		}
	}
}

// commandNamed returns the command, or nil.
func commandNamed(name string) *command { return byName[name] }

// commandNames returns the names of all commands, sorted, and for.
func commandNames() []string {
	names := []string{"for"}
	for name := range byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Usage lists the commands with their options and meanings, for --help.
func Usage() string {
	var b strings.Builder
	b.WriteString("A scenario is a txtar archive: commands, one a line, then files after -- NAME -- lines.\n" +
		"# begins a comment. [sim], [ovsdummy], [netns], [cluster] before a command limit it to that backend, [!NAME] to the others.\n" +
		forUsage + " … } repeats lines with $VAR and ${VAR} replaced, also in the files they apply.\n" +
		"ADDRESS: " + addressForms + ". N: a node or owner/IP.\n" +
		"Expectations: KEY=A|B is one of, KEY!=A|B none of.\n")
	for _, g := range groups() {
		fmt.Fprintf(&b, "\n%s\n", g.title)
		for _, c := range g.commands {
			fmt.Fprintf(&b, "  %s\n        %s\n", c.usage, c.meaning)
		}
	}
	return b.String()
}
