package determinism_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"towtank/tools/determinism"
)

func TestAnalyzer(t *testing.T) {
	if err := determinism.Analyzer.Flags.Set("scope", "checked,maprange/...,elsewhere/...,-elsewhere"); err != nil {
		t.Fatal(err)
	}
	analysistest.Run(t, analysistest.TestData(), determinism.Analyzer, "checked", "maprange", "elsewhere")
}
