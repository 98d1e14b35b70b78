package check

import "towtank/sim"

type Result struct {
	ID     int
	Node   string
	OK     bool
	Detail string
}
type Checker struct{ w *sim.World }

func New(w *sim.World) *Checker               { return &Checker{w} }
func (c *Checker) AfterSettle() []Result      { return nil }
func (c *Checker) AtStep() []Result           { return nil }
func (c *Checker) Clean(n *sim.Node) []string { return nil }
func (c *Checker) End(keep bool) []Result     { return nil }
