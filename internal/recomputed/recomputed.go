package recomputed

import (
	"reflect"
	"unsafe"

	"github.com/gomlx/gomlx/core/graph"
)

// Of reports whether x stands between Node.Checkpoint and Node.StopCheckpoint. It is false too if
// this build of GoMLX keeps that elsewhere; the package's test fails then.
func Of(x *graph.Node) bool {
	field := reflect.ValueOf(x).Elem().FieldByName("needsRematerialization")
	if !field.IsValid() || field.Kind() != reflect.Bool {
		return false
	}
	return *(*bool)(unsafe.Pointer(field.UnsafeAddr()))
}

// Keep returns y, which an op of this module made of x, as a node that is kept where x is computed
// again.
func Keep(x, y *graph.Node) *graph.Node {
	if Of(x) {
		return y.Checkpoint()
	}
	return y
}

// Stop returns nodes as they are read where nothing is computed again, and whether one of them is
// computed again.
func Stop(list []*graph.Node) (stopped []*graph.Node, any bool) {
	stopped = make([]*graph.Node, len(list))
	for i, x := range list {
		stopped[i] = x
		if x != nil && Of(x) {
			stopped[i], any = x.StopCheckpoint(), true
		}
	}
	return stopped, any
}
