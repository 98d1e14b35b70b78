package apiserver

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"towtank/sim/kube"
)

// discovery answers what is not about a resource: which there are, the version, and health.
func (s *Server) discovery(w http.ResponseWriter, hr *http.Request) bool {
	path := strings.Trim(hr.URL.Path, "/")
	parts := strings.Split(path, "/")
	switch {
	case path == "healthz" || path == "livez" || path == "readyz":
		_, _ = w.Write([]byte("ok")) // the client is gone if this fails
	case path == "version":
		answer(w, http.StatusOK, jsonOf(version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.0-towtank"}))
	case path == "api":
		answer(w, http.StatusOK, jsonOf(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}))
	case path == "apis":
		answer(w, http.StatusOK, jsonOf(groups()))
	case len(parts) == 2 && parts[0] == "api" && parts[1] == "v1":
		answer(w, http.StatusOK, jsonOf(resources(schema.GroupVersion{Version: "v1"})))
	case len(parts) == 3 && parts[0] == "apis":
		list := resources(schema.GroupVersion{Group: parts[1], Version: parts[2]})
		if len(list.APIResources) == 0 {
			fail(w, noSuchPath(hr))
			return true
		}
		answer(w, http.StatusOK, jsonOf(list))
	default:
		return false
	}
	return true
}

func groups() metav1.APIGroupList {
	out := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, k := range kube.AllKinds() {
		gv, err := schema.ParseGroupVersion(k.APIVersion())
		if err != nil || gv.Group == "" || slices.ContainsFunc(out.Groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group }) {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		out.Groups = append(out.Groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	return out
}

func resources(gv schema.GroupVersion) metav1.APIResourceList {
	out := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	add := func(name string, k kube.Kind, verbs ...string) {
		out.APIResources = append(out.APIResources, metav1.APIResource{Name: name, Namespaced: k.Namespaced(), Kind: string(k), Verbs: verbs})
	}
	for _, k := range kube.AllKinds() {
		if k.APIVersion() != gv.String() {
			continue
		}
		name := k.Resource().Resource
		add(name, k, "create", "delete", "get", "list", "patch", "update", "watch")
		if k.HasStatus() {
			add(name+"/status", k, "get", "patch", "update")
		}
	}
	if gv == (schema.GroupVersion{Version: "v1"}) {
		out.APIResources = append(out.APIResources, metav1.APIResource{Name: "events", Namespaced: true, Kind: "Event", Verbs: []string{"create", "get", "patch"}})
	}
	return out
}
