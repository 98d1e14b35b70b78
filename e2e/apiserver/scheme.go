package apiserver

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"towtank/agent/apis/crd/v1beta1"
)

// wire has what may come and go over the wire.
var wire = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	return s
}()

// decoder reads what clients send: JSON, YAML, and the protobuf that client-go prefers.
var decoder = serializer.NewCodecFactory(wire).UniversalDeserializer()

// typed returns a copy of an object that says its kind and version, as it goes over the wire. The stored
// ones do not.
func typed(o runtime.Object) (runtime.Object, error) {
	if gvk := o.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return o, nil
	}
	gvks, _, err := wire.ObjectKinds(o)
	if err != nil {
		return nil, fmt.Errorf("object of type %T: %w", o, err)
	}
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(gvks[0])
	return o, nil
}

// encode returns the JSON of an object.
func encode(o runtime.Object) ([]byte, error) {
	o, err := typed(o)
	if err != nil {
		return nil, err
	}
	return json.Marshal(o)
}
