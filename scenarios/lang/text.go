package lang

// ExpectText returns an expectation as it is written, with its leading "expect"; "" for none.
func ExpectText(e *Expect) string {
	if e == nil {
		return ""
	}
	var p printer
	e.print(&p)
	return p.String()
}
