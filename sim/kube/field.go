package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"towtank/internal/spelling"
)

// Field returns the text of a field of an object, "" if it is empty or absent. A path begins at the object
// (metadata.name, spec.type, endpoints[0].addresses[0], data.KEY), or else in its status; condition.T is the
// status of the condition of type T, condition.T.reason another field of it. Lists are indexed: ingress[0].ip.
// Lists and objects are in JSON. A path that names no field of the kind is an error, see CheckField.
func Field(o runtime.Object, path string) (string, error) {
	typed, ok := o.(object)
	if !ok {
		return "", fmt.Errorf("field %s: objects of type %T have no metadata", path, o)
	}
	info, err := kindOf(typed)
	if err != nil {
		return "", fmt.Errorf("field %s: %w", path, err)
	}
	parts, err := fullPath(info, typed, path)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("field %s: %w", path, err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return "", fmt.Errorf("field %s: %w", path, err)
	}
	switch parts[0] {
	case "kind":
		return string(info.kind), nil
	case "apiVersion":
		if v := text(tree["apiVersion"]); v != "" {
			return v, nil
		}
		return info.apiVersion(), nil
	case "condition":
		field := "status"
		if len(parts) == 3 {
			field = parts[2]
		}
		list, _ := lookup(tree, []string{"status", "conditions"}).([]any)
		for _, c := range list {
			if text(lookup(c, []string{"type"})) == parts[1] {
				return text(lookup(c, []string{field})), nil
			}
		}
		return "", nil
	}
	return text(lookup(tree, parts)), nil
}

// CheckField returns an error if a path, as Field reads it, names no field that objects of the kind have.
func CheckField(kind Kind, path string) error {
	info := kindByName[kind]
	if info == nil {
		return fmt.Errorf("field %s: there is no kind %s", path, kind)
	}
	o, err := info.object(info.versions[0])
	if err != nil {
		return fmt.Errorf("field %s: %w", path, err)
	}
	_, err = fullPath(info, o, path)
	return err
}

// fullPath splits a path and puts status before it, where that is meant.
func fullPath(info *kindInfo, o object, path string) ([]string, error) {
	parts := pathParts(path)
	if len(parts) == 0 {
		return nil, fmt.Errorf("field %q: the path is empty", path)
	}
	if info.untyped {
		return parts, nil
	}
	top := jsonFields(reflect.TypeOf(o))
	status, hasStatus := top["status"]
	switch {
	case parts[0] == "condition":
		if len(parts) < 2 || len(parts) > 3 {
			return nil, fmt.Errorf("field %s: found %d words, allowed: condition.TYPE or condition.TYPE.FIELD", path, len(parts))
		}
		if !hasStatus || jsonFields(status)["conditions"] == nil {
			return nil, fmt.Errorf("field %s: objects of kind %s have no conditions", path, info.kind)
		}
		if len(parts) == 3 {
			return parts, checkPath(info.kind, path, jsonFields(status)["conditions"].Elem(), parts[2:])
		}
		return parts, nil
	case top[parts[0]] != nil:
		return parts, checkPath(info.kind, path, reflect.TypeOf(o), parts)
	case hasStatus && jsonFields(status)[parts[0]] != nil:
		return append([]string{"status"}, parts...), checkPath(info.kind, path, status, parts)
	}
	known := slices.Sorted(maps.Keys(top))
	if hasStatus {
		known = append(known, slices.Sorted(maps.Keys(jsonFields(status)))...)
	}
	return nil, fmt.Errorf("field %s: %s has no field %q%s", path, info.kind, parts[0], spelling.Hint(parts[0], known))
}

// checkPath follows a path through the fields of a type.
func checkPath(kind Kind, path string, t reflect.Type, parts []string) error {
	for i, part := range parts {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case t.Kind() == reflect.Map, t.Kind() == reflect.Interface, t == reflect.TypeFor[runtime.RawExtension]():
			return nil // every key may be there
		case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
			if _, err := strconv.ParseUint(part, 10, 31); err != nil {
				return fmt.Errorf("field %s: found %q, allowed: the index of a list as %s[0]", path, part, strings.Join(parts[:i], "."))
			}
			t = t.Elem()
		case t.Kind() == reflect.Struct && !t.Implements(marshaler) && !reflect.PointerTo(t).Implements(marshaler):
			fields := jsonFields(t)
			if fields[part] == nil {
				return fmt.Errorf("field %s: %s has no field %q%s", path, kind, strings.Join(parts[:i+1], "."),
					spelling.Hint(part, slices.Sorted(maps.Keys(fields))))
			}
			t = fields[part]
		default:
			return fmt.Errorf("field %s: %s of %s is one value, and has no %q", path, strings.Join(parts[:i], "."), kind, part)
		}
	}
	return nil
}

// marshaler is implemented by types that are one value in JSON, such as times and quantities.
var marshaler = reflect.TypeFor[json.Marshaler]()

// lookup follows a path; a key with dots is found if the rest of the path is its name.
func lookup(v any, parts []string) any {
	for i, part := range parts {
		switch t := v.(type) {
		case map[string]any:
			next, ok := t[part]
			if !ok {
				return t[strings.Join(parts[i:], ".")]
			}
			v = next
		case []any:
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || n >= len(t) {
				return nil
			}
			v = t[n]
		default:
			return nil
		}
	}
	return v
}

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case map[string]any:
		if len(v) == 0 {
			return ""
		}
	case []any:
		if len(v) == 0 {
			return ""
		}
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(data)
}
