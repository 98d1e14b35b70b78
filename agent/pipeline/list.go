package pipeline

import (
	"errors"

	"towtank/datapath"
)

// List collects the objects of a unit, and what could not be made.
type List struct {
	objs []datapath.Object
	errs []error
}

// Add appends what a constructor returned.
func Add[T datapath.Object](l *List, o T, err error) {
	if err != nil {
		l.errs = append(l.errs, err)
		return
	}
	l.objs = append(l.objs, o)
}

// Objects returns what was collected.
func (l *List) Objects() []datapath.Object { return l.objs }

// Err returns what could not be made: a fault of the renderer or of its input.
func (l *List) Err() error { return errors.Join(l.errs...) }
