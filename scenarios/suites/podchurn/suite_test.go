// Package podchurn is the Ginkgo suite "Pod churn": Pods come and go, fail and come back; each one that
// runs is wired, and nothing is left of the others.
package podchurn

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"towtank/e2e/suites"
)

func TestPodChurn(t *testing.T) {
	suites.Use()
	RegisterFailHandler(Fail)
	RunSpecs(t, "Pod churn")
}
