package kube

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Problem is what is wrong with one field of an object.
type Problem struct {
	// Field is its path: spec.ports[0].port.
	Field string
	// Text says what was found and what is allowed.
	Text string
	// Line is the field's line in the file, if the object came from one; else 0.
	Line int
}

// InvalidError says why an object is refused.
type InvalidError struct {
	// File and Document (from 1) are where the object was read; empty and 0 if it came otherwise.
	File     string
	Document int
	// Object is Kind namespace/name.
	Object   string
	Problems []Problem
}

// Error returns one line for each problem: file:line: Kind namespace/name: field: found …, allowed: ….
func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		var b strings.Builder
		switch {
		case e.File != "" && p.Line > 0:
			fmt.Fprintf(&b, "%s:%d: ", e.File, p.Line)
		case e.File != "":
			fmt.Fprintf(&b, "%s: document %d: ", e.File, e.Document)
		}
		if e.Object != "" {
			b.WriteString(e.Object + ": ")
		}
		if p.Field != "" {
			b.WriteString(p.Field + ": ")
		}
		b.WriteString(p.Text)
		lines[i] = b.String()
	}
	return strings.Join(lines, "\n")
}

// Status makes the error one of the API's: apierrors.IsInvalid is true of it.
func (e *InvalidError) Status() metav1.Status {
	kind, key, _ := strings.Cut(e.Object, " ")
	gk := schema.GroupKind{Kind: kind}
	if info := kindByName[Kind(kind)]; info != nil {
		gk.Group = info.group
	}
	_, name := splitKey(key)
	var list field.ErrorList
	for _, p := range e.Problems {
		list = append(list, field.Invalid(field.NewPath(p.Field), "", p.Text))
	}
	return apierrors.NewInvalid(gk, name, list).Status()
}

// problems collects what is wrong with an object.
type problems struct{ list []Problem }

// bad adds a field with what was found there and what is allowed.
func (p *problems) bad(field string, found any, allowed string, a ...any) {
	p.textf(field, "found %s, allowed: %s", show(found), fmt.Sprintf(allowed, a...))
}

// textf adds a field with a text.
func (p *problems) textf(field, format string, a ...any) {
	p.list = append(p.list, Problem{Field: field, Text: fmt.Sprintf(format, a...)})
}

// fields adds the problems that Kubernetes' own validation found.
func (p *problems) fields(list field.ErrorList) {
	for _, e := range list {
		p.list = append(p.list, Problem{Field: e.Field, Text: e.ErrorBody()})
	}
}

func show(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case fmt.Stringer:
		return fmt.Sprintf("%q", v.String())
	}
	return fmt.Sprint(v)
}

// oneOf adds a problem if the value is not one of the allowed.
func oneOf[T ~string](p *problems, field string, v T, allowed ...T) {
	if slices.Contains(allowed, v) {
		return
	}
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	p.bad(field, string(v), "%s", strings.Join(words, ", "))
}
