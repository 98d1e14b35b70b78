package database

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Values as RFC 7047, 5.1 writes them.

func wireMap(m map[string]string) any {
	pairs := [][2]string{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, [2]string{k, m[k]})
	}
	return []any{"map", pairs}
}

func wireSet(values ...any) any {
	if values == nil {
		values = []any{}
	}
	return []any{"set", values}
}

func wireUUID(id string) any    { return []any{"uuid", id} }
func wireNamed(name string) any { return []any{"named-uuid", name} }

// atoms returns the values of a column: of a set, or the only one; a uuid is its text.
func atoms(raw json.RawMessage) []any {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		return []any{v}
	}
	if len(list) != 2 {
		return nil
	}
	switch list[0] {
	case "set":
		inner, _ := list[1].([]any)
		var out []any
		for _, x := range inner {
			if pair, ok := x.([]any); ok && len(pair) == 2 && pair[0] == "uuid" {
				x = pair[1]
			}
			out = append(out, x)
		}
		return out
	case "uuid":
		return []any{list[1]}
	}
	return nil
}

func textOf(raw json.RawMessage) string {
	for _, a := range atoms(raw) {
		if s, ok := a.(string); ok {
			return s
		}
	}
	return ""
}

// numberOf returns the number in a column, 0 if it is empty.
func numberOf(raw json.RawMessage) int64 {
	for _, a := range atoms(raw) {
		if n, ok := a.(float64); ok {
			return int64(n)
		}
	}
	return 0
}

func textsOf(raw json.RawMessage) []string {
	var out []string
	for _, a := range atoms(raw) {
		if s, ok := a.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// mapOf returns the pairs of a map column.
func mapOf(raw json.RawMessage) map[string]string {
	var v []json.RawMessage
	out := map[string]string{}
	if json.Unmarshal(raw, &v) != nil || len(v) != 2 {
		return out
	}
	var pairs [][2]string
	if json.Unmarshal(v[1], &pairs) == nil {
		for _, p := range pairs {
			out[p[0]] = p[1]
		}
	}
	return out
}

// opResult is the result of one operation of a transaction.
type opResult struct {
	Error   string `json:"error"`
	Details string `json:"details"`
	Count   int    `json:"count"`
}

// txnError returns the first error of a transaction's results with the index of its operation; the index is
// the number of operations if the commit failed.
func txnError(raw json.RawMessage) (int, error) {
	var results []*opResult
	if err := json.Unmarshal(raw, &results); err != nil {
		return 0, fmt.Errorf("ovsdb: results %.100s: %w", raw, err)
	}
	for i, r := range results {
		if r != nil && r.Error != "" {
			if r.Details == "" {
				return i, fmt.Errorf("ovsdb: %s", r.Error)
			}
			return i, fmt.Errorf("ovsdb: %s: %s", r.Error, r.Details)
		}
	}
	return 0, nil
}
