package recomputed

import (
	"reflect"
	"unsafe"

	"github.com/gomlx/gomlx/core/graph"
)

// IsRecomputed reports whether x is between Node.Checkpoint and Node.StopCheckpoint. It returns
// false if the field has another name in this version of GoMLX; then the test of this package
// fails.
func IsRecomputed(x *graph.Node) bool {
	field := reflect.ValueOf(x).Elem().FieldByName("needsRematerialization")
	if !field.IsValid() || field.Kind() != reflect.Bool {
		return false
	}
	return *(*bool)(unsafe.Pointer(field.UnsafeAddr()))
}

// CheckpointIf returns y, the result of an op of this module with input x, as a checkpoint if x is
// recomputed.
func CheckpointIf(x, y *graph.Node) *graph.Node {
	if IsRecomputed(x) {
		return y.Checkpoint()
	}
	return y
}

// StopCheckpoints returns the nodes with StopCheckpoint applied to those that are recomputed, and
// whether there are any.
func StopCheckpoints(list []*graph.Node) (stopped []*graph.Node, any bool) {
	stopped = make([]*graph.Node, len(list))
	for i, x := range list {
		stopped[i] = x
		if x != nil && IsRecomputed(x) {
			stopped[i], any = x.StopCheckpoint(), true
		}
	}
	return stopped, any
}
