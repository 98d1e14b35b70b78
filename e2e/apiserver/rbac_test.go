package apiserver_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"towtank/e2e/apiserver"
)

const roles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: r}
rules:
- {apiGroups: [""], resources: [services], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: r}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}
subjects: [{kind: ServiceAccount, name: a, namespace: ns}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: default}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [mine], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: r, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}
subjects: [{kind: ServiceAccount, name: a, namespace: ns}]
`

// A client that is restricted may do what its account is given, and is told that it may not do the rest.
func TestRestrict(t *testing.T) {
	s, ctx := serve(t, apiserver.Config{}), limit(t)
	given, err := apiserver.ReadRoles([]byte(roles))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Restrict("n1", "ns/a", given); err != nil {
		t.Fatal(err)
	}
	if err := s.Restrict("n1", "ns/b", given); err == nil {
		t.Error("an account that is not there")
	}
	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}}")
	k, _ := s.clients(t, "n1")
	if _, err := k.CoreV1().Services("").List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("list of Services: %v", err)
	}
	if _, err := k.CoreV1().ConfigMaps("default").Get(ctx, "mine", metav1.GetOptions{}); err != nil {
		t.Errorf("get of its ConfigMap: %v", err)
	}
	_, err = k.CoreV1().ConfigMaps("default").Get(ctx, "theirs", metav1.GetOptions{})
	forbidden(t, "another ConfigMap", err)
	_, err = k.CoreV1().ConfigMaps("kube-system").Get(ctx, "mine", metav1.GetOptions{})
	forbidden(t, "a ConfigMap elsewhere", err)
	_, err = k.CoreV1().Services("").Watch(ctx, metav1.ListOptions{})
	forbidden(t, "watch of Services", err)
	forbidden(t, "deletion", k.CoreV1().Services("default").Delete(ctx, "a", metav1.DeleteOptions{}))
	for want, text := range map[string]string{
		"found *":              strings.Replace(roles, "verbs: [list]", `verbs: ["*"]`, 1),
		"which is not there":   strings.Replace(roles, "kind: Role, name: r}", "kind: Role, name: q}", 1),
		"allowed: a ServiceAc": strings.Replace(roles, "kind: ServiceAccount", "kind: User", 1),
	} {
		if _, err := apiserver.ReadRoles([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func forbidden(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: %v, want it to be forbidden", what, err)
	}
}
