// Package services is the Ginkgo suite "Service updates": whatever changes of a Service, its traffic is
// as if the Service had been created that way.
package services

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"towtank/e2e/suites"
)

func TestServiceUpdates(t *testing.T) {
	suites.Use()
	RegisterFailHandler(Fail)
	RunSpecs(t, "Service updates")
}
