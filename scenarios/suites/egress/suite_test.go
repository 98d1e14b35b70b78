// Package egress is the Ginkgo suite "Egress migration": wherever an Egress IP goes, and whyever, the
// selected Pods leave with it, and nobody else's traffic notices.
package egress

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"towtank/e2e/suites"
)

func TestEgressMigration(t *testing.T) {
	suites.Use()
	RegisterFailHandler(Fail)
	RunSpecs(t, "Egress migration")
}
