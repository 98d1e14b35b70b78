package fuzz

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"towtank/scenarios/lang"
)

// simplify makes single steps and manifests smaller.
func (s *shrinker) simplify() {
	s.fewerNodes()
	for i := 0; i < len(s.best.Lines) && !s.late(); i++ {
		s.simplifyStep(i)
	}
	for i := 0; i < len(s.best.Files) && !s.late(); i++ {
		s.simplifyManifest(i)
	}
}

// fewerNodes leaves nodes out, the last first.
func (s *shrinker) fewerNodes() {
	for i := range s.best.Lines {
		for {
			st, ok := s.best.Lines[i].Step.(lang.Nodes)
			if !ok || len(st.Names) < 2 || s.late() {
				break
			}
			f := s.with(s.best.Lines)
			f.Lines[i].Step = lang.Nodes{Names: st.Names[:len(st.Names)-1]}
			if !s.try(f) || i >= len(s.best.Lines) {
				break
			}
		}
	}
}

// simplifyStep tries simpler forms of one step.
func (s *shrinker) simplifyStep(i int) {
	for again := true; again && i < len(s.best.Lines) && !s.late(); {
		again = false
		for _, text := range simpler(s.best.Lines[i].Step) {
			step, err := lang.ParseStep(text)
			if err != nil {
				continue
			}
			f := s.with(s.best.Lines)
			f.Lines[i].Step = step
			if s.try(f) {
				again = true
				break
			}
		}
	}
}

// simpler returns simpler forms of a step, as text.
func simpler(st lang.Step) []string {
	switch t := st.(type) {
	case lang.Patch:
		var out []string
		var tree any
		if json.Unmarshal([]byte(t.JSON), &tree) != nil {
			return nil
		}
		for _, smaller := range without(tree) {
			if data, err := json.Marshal(smaller); err == nil {
				out = append(out, fmt.Sprintf("patch %s %s %s", t.Object.Kind, t.Object, data))
			}
		}
		return out
	case lang.StepEvents:
		if t.N > 1 {
			return []string{"step 1", fmt.Sprintf("step %d", t.N/2)}
		}
		return nil
	case lang.Advance:
		var out []string
		for _, d := range []string{"1s", "20s", "40s", "60s"} {
			if a, err := lang.ParseStep("advance " + d); err == nil && a.(lang.Advance).Duration < t.Duration {
				out = append(out, "advance "+d)
			}
		}
		return out
	case lang.Host, lang.Apply, lang.Nodes:
		return nil
	}
	// Every word that can go: options, and what is expected stays.
	words := strings.Fields(st.String())
	var out []string
	for i, w := range words {
		if w == "expect" {
			break
		}
		if i > 1 && strings.Contains(w, "=") {
			out = append(out, strings.Join(slices.Delete(slices.Clone(words), i, i+1), " "))
		}
	}
	return out
}

// simplifyManifest leaves out documents, fields and items of a manifest.
func (s *shrinker) simplifyManifest(i int) {
	name := s.best.Files[i].Name
	docs := documents(s.best.Files[i].Data)
	if docs == nil {
		return
	}
	for again := true; again && !s.late(); {
		again = false
		for _, smaller := range without(docs) {
			list, ok := smaller.([]any)
			if !ok || len(list) == 0 {
				continue
			}
			if s.tryManifest(name, list) {
				docs, again = list, true
				break
			}
		}
	}
}

func (s *shrinker) tryManifest(name string, docs []any) bool {
	data := text(docs)
	if data == nil {
		return false
	}
	f := s.with(s.best.Lines)
	for i := range f.Files {
		if f.Files[i].Name == name {
			f.Files[i].Data = data
		}
	}
	return s.try(f)
}

// documents parses a manifest, nil if it is not right.
func documents(data []byte) []any {
	var out []any
	for _, doc := range strings.Split(string(data), "\n---\n") {
		var tree any
		if yaml.Unmarshal([]byte(doc), &tree) != nil || tree == nil {
			return nil
		}
		out = append(out, tree)
	}
	return out
}

func text(docs []any) []byte {
	var parts []string
	for _, d := range docs {
		data, err := yaml.Marshal(d)
		if err != nil {
			return nil
		}
		parts = append(parts, string(data))
	}
	return []byte(strings.Join(parts, "---\n"))
}

// needed are fields without which an object is none.
var needed = []string{"apiVersion", "kind", "metadata", "name"}

// without returns the trees that come of leaving out one field or item, the largest parts first.
func without(tree any) []any {
	var out []any
	switch t := tree.(type) {
	case []any:
		for i := range t {
			out = append(out, slices.Delete(slices.Clone(t), i, i+1))
		}
		for i := range t {
			for _, smaller := range without(t[i]) {
				c := slices.Clone(t)
				c[i] = smaller
				out = append(out, c)
			}
		}
	case map[string]any:
		keys := sorted(t)
		for _, k := range keys {
			if !slices.Contains(needed, k) {
				out = append(out, replaced(t, k, nil, true))
			}
		}
		for _, k := range keys {
			for _, smaller := range without(t[k]) {
				out = append(out, replaced(t, k, smaller, false))
			}
		}
	}
	return out
}

func sorted(m map[string]any) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// replaced returns a copy of a map with another value for a key, or without it.
func replaced(m map[string]any, key string, value any, gone bool) map[string]any {
	c := map[string]any{}
	for k, v := range m {
		c[k] = v
	}
	if gone {
		delete(c, key)
	} else {
		c[key] = value
	}
	return c
}
