package lang

import "fmt"

// ExpectText returns an expectation as it is written, with its leading "expect"; "" for none.
func ExpectText(e *Expect) string {
	if e == nil {
		return ""
	}
	var p printer
	e.print(&p)
	return p.String()
}

// ParseTemplate parses the text of a line of a loop that uses the loop's variable, as a Go test writes
// it. Only the command's name is checked: the rest is known when the variable has a value.
func ParseTemplate(text string) (Template, error) {
	t, err := lex(&lexer{text: text})
	if err != nil {
		return Template{}, fmt.Errorf("step %q: %w", text, err)
	}
	if _, err := oneOf(firstOf(t.words), commandNames()...); err != nil {
		return Template{}, fmt.Errorf("step %q: %w", text, err)
	}
	return Template{t}, nil
}
