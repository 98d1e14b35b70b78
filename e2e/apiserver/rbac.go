package apiserver

import (
	"bytes"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Grant is one verb on one resource that RBAC gives an account.
type Grant struct {
	Access
	// Name is the only object it is for; empty: all. An Access.Namespace that is empty is all namespaces.
	Name string
}

// Roles is what RBAC gives to the ServiceAccounts of manifests, by namespace/name.
type Roles map[string][]Grant

// ReadRoles reads the (Cluster)Roles and (Cluster)RoleBindings of manifests. Rules with *, and bindings to others
// than ServiceAccounts, are errors.
func ReadRoles(manifests ...[]byte) (Roles, error) {
	roles := map[string][]rbacv1.PolicyRule{} // namespace/name, of ClusterRoles /name
	type binding struct {
		namespace string // where it grants; empty: everywhere
		role      string
		subjects  []rbacv1.Subject
	}
	var bindings []binding
	for _, m := range manifests {
		for _, doc := range bytes.Split(m, []byte("\n---\n")) {
			data, err := yaml.ToJSON(doc)
			if err != nil {
				return nil, fmt.Errorf("roles: %w", err)
			}
			o, _, err := decoder.Decode(data, nil, nil)
			if runtime.IsNotRegisteredError(err) {
				continue // a kind of somebody else: a CustomResourceDefinition
			}
			if err != nil {
				return nil, fmt.Errorf("roles: %w", err)
			}
			switch o := o.(type) {
			case *rbacv1.ClusterRole:
				roles["/"+o.Name] = o.Rules
			case *rbacv1.Role:
				roles[o.Namespace+"/"+o.Name] = o.Rules
			case *rbacv1.ClusterRoleBinding:
				bindings = append(bindings, binding{"", "/" + o.RoleRef.Name, o.Subjects})
			case *rbacv1.RoleBinding:
				role := o.Namespace + "/" + o.RoleRef.Name
				if o.RoleRef.Kind == "ClusterRole" {
					role = "/" + o.RoleRef.Name
				}
				bindings = append(bindings, binding{o.Namespace, role, o.Subjects})
			}
		}
	}
	out := Roles{}
	for _, b := range bindings {
		rules, ok := roles[b.role]
		if !ok {
			return nil, fmt.Errorf("roles: a binding names the role %s, which is not there", b.role)
		}
		grants, err := grantsOf(rules, b.namespace)
		if err != nil {
			return nil, fmt.Errorf("role %s: %w", b.role, err)
		}
		for _, s := range b.subjects {
			if s.Kind != rbacv1.ServiceAccountKind {
				return nil, fmt.Errorf("roles: found subject %s %s, allowed: a ServiceAccount", s.Kind, s.Name)
			}
			account := s.Namespace + "/" + s.Name
			out[account] = append(out[account], grants...)
		}
	}
	return out, nil
}

func grantsOf(rules []rbacv1.PolicyRule, namespace string) ([]Grant, error) {
	var out []Grant
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					if group == rbacv1.APIGroupAll || resource == rbacv1.ResourceAll || verb == rbacv1.VerbAll {
						return nil, fmt.Errorf("found *, allowed: what is needed")
					}
					for _, name := range names {
						out = append(out, Grant{Access{Verb: verb, Group: group, Resource: resource, Namespace: namespace}, name})
					}
				}
			}
		}
	}
	return out, nil
}

// Gives reports whether a grant gives an access to an object.
func (g Grant) Gives(a Access, name string) bool {
	return g.Verb == a.Verb && g.Group == a.Group && g.Resource == a.Resource &&
		(g.Namespace == "" || g.Namespace == a.Namespace) && (g.Name == "" || g.Name == name)
}

// Restrict lets a client do only what RBAC gives a ServiceAccount (namespace/name); everything else is answered
// with 403 Forbidden.
func (s *Server) Restrict(client, account string, roles Roles) error {
	grants, ok := roles[account]
	if !ok {
		return fmt.Errorf("restrict %s: RBAC gives nothing to the ServiceAccount %s", client, account)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.client(client)
	c.account, c.grants = account, grants
	return nil
}

// forbidden returns an error if the client must not do what it asks for. It needs the lock.
func (r *request) forbidden() error {
	c, a := r.client, r.access()
	if c.account == "" || slices.ContainsFunc(c.grants, func(g Grant) bool { return g.Gives(a, r.name) }) {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, r.name,
		fmt.Errorf("ServiceAccount %s cannot %s", c.account, a))
}
