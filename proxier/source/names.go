package source

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// misnamed says what is wrong with the name and the namespace of an object; "": nothing. An API server accepts no other
// names, and nobody has looked at those of a manifest: they reach terminals, logs and the comments of elements.
func misnamed(kind string, meta metav1.Object) string {
	name, namespace := meta.GetName(), meta.GetNamespace()
	switch {
	case kind == kindService && len(validation.IsDNS1123Label(name)) > 0:
		return fmt.Sprintf("metadata.name %s is not a DNS label", state.Quote(name))
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return fmt.Sprintf("metadata.name %s is not a DNS name", state.Quote(name))
	case namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0:
		return fmt.Sprintf("metadata.namespace %s is not a DNS label", state.Quote(namespace))
	}
	return ""
}

// portNamed reports whether a port may have a name. A port of a Service with one port may have none.
func (f *findings) portNamed(field fieldPath, name string) bool {
	if name == "" || len(validation.IsDNS1123Label(name)) == 0 {
		return true
	}
	f.Add(field.String(), "%s is not a DNS label: the port is not used", state.Quote(name))
	return false
}
