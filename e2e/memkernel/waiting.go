package memkernel

import (
	"reflect"
	"slices"
	"strings"
)

// Waiting lists the Services with ports in the queue of an nft engine, whatever its Results say. The engine itself has no use for that
// list: a pass must not walk over all that wait.
func Waiting(engine any) (services []string) {
	tables := reflect.ValueOf(engine).Elem().FieldByName("tables")
	for i := range tables.Len() {
		queue := tables.Index(i).Elem().FieldByName("Want").Elem().FieldByName("Later").Elem().FieldByName("ports")
		for _, port := range queue.MapKeys() {
			service, _, _ := strings.Cut(port.String(), ":")
			services = append(services, service)
		}
	}
	slices.Sort(services)
	return slices.Compact(services)
}
