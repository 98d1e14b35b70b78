// Package pin keeps module requirements while the packages that use them are being written.
package pin

import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "github.com/spf13/cobra"
	_ "golang.org/x/tools/go/analysis"
	_ "golang.org/x/tools/txtar"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apimachinery/pkg/apis/meta/v1"
	_ "k8s.io/client-go/gentype"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/endpointslice"
	_ "k8s.io/klog/v2"
	_ "k8s.io/utils/ptr"
	_ "sigs.k8s.io/yaml"
)
