package kube

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Field returns the text of a field of an object, "" if it is empty or absent. A path begins in the
// status, unless its first word is metadata, spec or status; condition.T is the status of the
// condition of type T, condition.T.reason another field of it. Lists are indexed: ingress[0].ip. Lists
// and objects are in JSON.
func Field(o runtime.Object, path string) (string, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("field %s: %w", path, err)
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return "", fmt.Errorf("field %s: %w", path, err)
	}
	parts := pathParts(path)
	if len(parts) == 0 {
		return "", fmt.Errorf("field %q: the path is empty", path)
	}
	switch parts[0] {
	case "metadata", "spec", "status":
	case "condition":
		if len(parts) < 2 || len(parts) > 3 {
			return "", fmt.Errorf("field %s: found %d words, allowed: condition.TYPE or condition.TYPE.FIELD", path, len(parts))
		}
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
	default:
		parts = append([]string{"status"}, parts...)
	}
	return text(lookup(tree, parts)), nil
}

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
