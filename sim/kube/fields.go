package kube

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"towtank/internal/spelling"
)

// fieldHint returns `; did you mean "x"?` for the last part of a field's path, if a field beside it in the
// type of o is spelled nearly so.
func fieldHint(o any, path string) string {
	parts := strings.Split(indexes.ReplaceAllString(path, ""), ".")
	t := reflect.TypeOf(o)
	for _, p := range parts[:len(parts)-1] {
		f, ok := jsonFields(t)[p]
		if !ok {
			return "" // inside a map, where every key is a field
		}
		t = f
	}
	return spelling.Hint(parts[len(parts)-1], slices.Sorted(maps.Keys(jsonFields(t))))
}

var indexes = regexp.MustCompile(`\[[^]]*\]`)

// jsonFields returns the fields of a struct, or of what a pointer or list of structs holds, by their
// names in JSON; nil for anything else.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && f.Anonymous:
			maps.Copy(out, jsonFields(f.Type))
		case name != "":
			out[name] = f.Type
		}
	}
	return out
}
