package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/internal/spelling"
)

// document is one YAML document of a file.
type document struct {
	number int // from 1
	line   int // lines of the file before it
	text   []byte
}

// splitDocuments separates a file at its --- lines. Documents without content are left out.
func splitDocuments(data []byte) []document {
	var out []document
	number, start, line := 0, 0, 0
	var cur bytes.Buffer
	flush := func(end int) {
		number++
		if text := cur.Bytes(); hasContent(text) {
			out = append(out, document{number, start, slices.Clone(text)})
		}
		cur.Reset()
		start = end
	}
	for l := range bytes.Lines(data) {
		line++
		if rest, ok := bytes.CutPrefix(l, []byte("---")); ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0) {
			if line > 1 || cur.Len() > 0 {
				flush(line - 1)
			}
			cur.Write(append([]byte("   "), rest...)) // what follows on the line belongs to the document
			continue
		}
		cur.Write(l)
	}
	flush(line)
	return out
}

func hasContent(text []byte) bool {
	for l := range bytes.Lines(text) {
		if l = bytes.TrimSpace(l); len(l) > 0 && l[0] != '#' && string(l) != "..." {
			return true
		}
	}
	return false
}

// manifest is one object of a file.
type manifest struct {
	info      *kindInfo
	object    object
	hasStatus bool
	givenIP   bool // an Egress with egressIP
	doc       document
}

// header is what every manifest has.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name, Namespace string
	} `json:"metadata"`
	Status json.RawMessage   `json:"status"`
	Items  []json.RawMessage `json:"items"`
}

// decode reads all objects of a file. All problems are reported.
func decode(data []byte, file string) ([]manifest, error) {
	var out []manifest
	var errs []error
	docs := splitDocuments(data)
	if len(docs) == 0 {
		return nil, fmt.Errorf("%s: found no object", file)
	}
	for _, doc := range docs {
		list, err := decodeDocument(doc, file)
		if err != nil {
			errs = append(errs, err)
		}
		out = append(out, list...)
	}
	return out, errors.Join(errs...)
}

func decodeDocument(doc document, file string) ([]manifest, error) {
	invalid := func(object string, p ...Problem) error {
		return &InvalidError{File: file, Document: doc.number, Object: object, Problems: p}
	}
	data, err := sigsyaml.YAMLToJSONStrict(doc.text)
	if err != nil {
		return nil, invalid("", yamlProblem(doc, err))
	}
	return decodeJSON(data, doc, file, invalid)
}

// yamlProblem gives an error of the YAML parser the line of the file.
func yamlProblem(doc document, err error) Problem {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
	p := Problem{Text: text, Line: doc.line + 1}
	if m := yamlLine.FindStringSubmatchIndex(text); m != nil {
		n, _ := strconv.Atoi(text[m[2]:m[3]]) // digits
		p.Line = doc.line + n
		p.Text = text[:m[2]] + strconv.Itoa(p.Line) + text[m[3]:]
	}
	p.Text = "not YAML: " + strings.Join(strings.Fields(p.Text), " ")
	if strings.Contains(p.Text, "cannot start any token") && bytes.ContainsRune(doc.text, '\t') {
		p.Text += "; a tab indents nothing in YAML, write spaces"
	}
	return p
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

func decodeJSON(data []byte, doc document, file string, invalid func(string, ...Problem) error) ([]manifest, error) {
	var h header
	if err := json.Unmarshal(data, &h); err != nil {
		return nil, invalid("", Problem{Text: "found " + jsonType(err) + ", allowed: an object with apiVersion, kind and metadata", Line: doc.line + 1})
	}
	if strings.HasSuffix(h.Kind, "List") && h.Items != nil {
		var out []manifest
		var errs []error
		for _, item := range h.Items {
			list, err := decodeJSON(item, doc, file, invalid)
			if err != nil {
				errs = append(errs, err)
			}
			out = append(out, list...)
		}
		return out, errors.Join(errs...)
	}
	name := strings.Trim(h.Metadata.Namespace+"/"+h.Metadata.Name, "/")
	info, problem := headerKind(h)
	if info == nil {
		problem.Line = lineOf(doc, problem.Field)
		return nil, invalid(name, problem)
	}
	m := manifest{info: info, hasStatus: !emptyJSON(h.Status), doc: doc}
	object := string(info.kind) + " " + name
	var err error
	if m.object, err = info.object(h.APIVersion[strings.LastIndexByte(h.APIVersion, '/')+1:]); err != nil {
		return nil, invalid(object, Problem{Text: err.Error()})
	}
	if u, ok := m.object.(*unstructured.Unstructured); ok {
		if err := json.Unmarshal(data, &u.Object); err != nil {
			return nil, invalid(object, Problem{Text: err.Error()})
		}
		return []manifest{m}, nil
	}
	strict, err := kjson.UnmarshalStrict(data, m.object)
	if p := decodeProblems(m.object, doc, data, strict, err); len(p) > 0 {
		return nil, invalid(object, p...)
	}
	if p := requiredFields(info, data, doc); len(p) > 0 {
		return nil, invalid(object, p...)
	}
	if e, ok := m.object.(*v1beta1.Egress); ok {
		m.givenIP = e.Spec.EgressIP != ""
	}
	return []manifest{m}, nil
}

// emptyJSON reports whether a value is absent or has only empty objects: the status that kubectl's dry
// run and code generators write says nothing.
func emptyJSON(data json.RawMessage) bool {
	var v any
	if len(data) == 0 || json.Unmarshal(data, &v) != nil {
		return true
	}
	var empty func(v any) bool
	empty = func(v any) bool {
		m, ok := v.(map[string]any)
		//determinism:ignore empty only looks
		for _, sub := range m {
			ok = ok && empty(sub)
		}
		return ok || v == nil
	}
	return empty(v)
}

// headerKind returns the kind that a manifest names, or what is wrong.
func headerKind(h header) (*kindInfo, Problem) {
	switch {
	case h.Kind == "":
		return nil, Problem{Field: "kind", Text: "is required"}
	case h.APIVersion == "":
		return nil, Problem{Field: "apiVersion", Text: "is required"}
	}
	info := kindByName[Kind(h.Kind)]
	if info == nil {
		var names []string
		for _, k := range kinds {
			names = append(names, string(k.kind))
		}
		return nil, Problem{Field: "kind", Text: fmt.Sprintf("unknown kind %q of %s%s", h.Kind, h.APIVersion, spelling.Hint(h.Kind, names))}
	}
	for _, v := range info.versions {
		if info.groupVersion(v) == h.APIVersion {
			return info, Problem{}
		}
	}
	return nil, Problem{Field: "apiVersion", Text: fmt.Sprintf("found %q for kind %s, allowed: %s", h.APIVersion, h.Kind, info.apiVersions())}
}

// jsonType says what stood where an object should.
func jsonType(err error) string {
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) {
		return err.Error()
	}
	text := "a " + t.Value
	if t.Value == "array" {
		text = "a list"
	}
	if t.Field != "" {
		text += " as " + t.Field
	}
	return text
}

// decodeProblems explains what the strict decoder found: unknown fields, and values of the wrong type.
func decodeProblems(into any, doc document, data []byte, strict []error, err error) []Problem {
	var out []Problem
	for _, e := range strict {
		p := Problem{Text: e.Error()}
		var f kjson.FieldError
		if errors.As(e, &f) {
			p.Field = f.FieldPath()
			p.Text = "unknown field" + fieldHint(into, p.Field)
			if strings.Contains(e.Error(), "duplicate") {
				p.Text = "the field is given twice"
			}
			p.Line = lineOf(doc, p.Field)
		}
		out = append(out, p)
	}
	if err == nil {
		return out
	}
	var tree any
	if json.Unmarshal(data, &tree) == nil {
		if p := nonStrings(doc, tree); len(p) > 0 {
			return append(out, p...)
		}
	}
	p := Problem{Text: strings.TrimPrefix(err.Error(), "json: ")}
	if m := goField.FindStringSubmatch(p.Text); m != nil {
		p.Field, p.Text = m[2], fmt.Sprintf("found %s, allowed: %s", foundName(m[1]), typeName(m[3]))
		p.Line = lineOf(doc, p.Field)
	}
	return append(out, p)
}

var goField = regexp.MustCompile(`cannot unmarshal (.*) into Go struct field [A-Za-z0-9]+\.(\S+) of type (\S+)`)

// foundName says what a decoder found: a type, or a number as it read it ("number 1.5"), which may be another one than was written.
func foundName(found string) string {
	if number, ok := strings.CutPrefix(found, "number "); ok {
		return number
	}
	return "a " + found
}

// typeName says a Go type as a manifest's author would.
func typeName(t string) string {
	switch {
	case strings.HasPrefix(t, "int"), strings.HasPrefix(t, "uint"):
		return "a whole number of " + strings.TrimLeft(t, "uint") + " bits"
	case t == "bool":
		return "true or false"
	case strings.HasPrefix(t, "[]"):
		return "a list"
	case strings.HasPrefix(t, "map["):
		return "a map"
	}
	if i := strings.LastIndexByte(t, '.'); i >= 0 {
		return t[i+1:]
	}
	return "a " + t
}

// stringMaps are the fields whose values are all strings; selector is one in a Service.
var stringMaps = []string{"labels", "annotations", "matchLabels", "nodeSelector", "selector"}

// nonStrings finds the values of labels and selectors that are no strings: usually a YAML 1.1
// boolean (yes, no, on, off, y, n) or a number that was not quoted.
func nonStrings(doc document, tree any) []Problem {
	var out []Problem
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case []any:
			for i := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), v[i])
			}
		case map[string]any:
			inner := path[strings.LastIndexByte(path, '.')+1:]
			for _, k := range slices.Sorted(maps.Keys(v)) {
				field := strings.TrimPrefix(path+"."+k, ".")
				switch value := v[k].(type) {
				case bool, float64:
					if slices.Contains(stringMaps, inner) {
						line, written := nodeAt(doc, field)
						if written == "" {
							written = fmt.Sprint(value)
						}
						kind := "number"
						if _, ok := value.(bool); ok {
							kind = "boolean"
						}
						out = append(out, Problem{
							Field: field, Line: line,
							Text: fmt.Sprintf("found %s, which YAML reads as a %s, allowed: a string; write %s: %q", written, kind, k, written),
						})
					}
				default:
					walk(field, value)
				}
			}
		}
	}
	walk("", tree)
	return out
}

// requiredFields reports what the schemas of the custom resources require, which an empty value
// cannot show.
func requiredFields(info *kindInfo, data []byte, doc document) []Problem {
	required := map[Kind][]string{KindEgress: {"appliedTo"}, KindExternalIPPool: {"ipRanges", "nodeSelector"}}[info.kind]
	if len(required) == 0 {
		return nil
	}
	var o struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	// It was decoded before.
	_ = json.Unmarshal(data, &o)
	var out []Problem
	for _, f := range required {
		if _, ok := o.Spec[f]; !ok {
			out = append(out, Problem{Field: "spec." + f, Text: "is required", Line: lineOf(doc, "spec")})
		}
	}
	return out
}

// lineOf returns the line of a field in the file: of the deepest part of its path that is there.
func lineOf(doc document, path string) int {
	line, _ := nodeAt(doc, path)
	return line
}

// nodeAt finds a field in a document: its line in the file, and its value as it is written if it is
// a scalar. It parses the document again, as only errors need it.
func nodeAt(doc document, path string) (line int, value string) {
	var root yaml.Node
	if yaml.Unmarshal(doc.text, &root) != nil || len(root.Content) == 0 {
		return doc.line + 1, ""
	}
	n := root.Content[0]
	line = n.Line
	parts := pathParts(path)
	for i, part := range parts {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		whole := strings.Join(parts[i:], ".") // a key with dots
		found := false
		if i, err := strconv.Atoi(part); err == nil && n.Kind == yaml.SequenceNode {
			if found = i < len(n.Content); found {
				n = n.Content[i]
				line = n.Line
			}
		}
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content) && !found; i += 2 {
			switch n.Content[i].Value {
			case whole:
				line, value = n.Content[i].Line, ""
				if v := n.Content[i+1]; v.Kind == yaml.ScalarNode {
					value = v.Value
				}
				return doc.line + line, value
			case part:
				line = n.Content[i].Line
				n, found = n.Content[i+1], true
			}
		}
		if !found {
			return doc.line + line, ""
		}
	}
	if n.Kind == yaml.ScalarNode {
		value = n.Value
	}
	return doc.line + line, value
}

// pathParts splits spec.ports[0].name into its parts.
func pathParts(path string) []string {
	var out []string
	for part := range strings.SplitSeq(strings.NewReplacer("[", ".", "]", "").Replace(path), ".") {
		if part != "" {
			out = append(out, part)
		}
	}
	return out
}
