package rematerialization

import (
	"reflect"
	"unsafe"

	"github.com/gomlx/gomlx/core/graph"
)

// IsRecomputed reports whether x is between Node.Checkpoint and Node.StopCheckpoint, so that GoMLX
// computes x again in the backward pass. If this version of GoMLX does not store the property in a
// field that can be read, IsRecomputed returns false.
func IsRecomputed(x *graph.Node) bool {
	field := reflect.ValueOf(x).Elem().FieldByName("needsRematerialization")
	if !field.IsValid() || field.Kind() != reflect.Bool {
		return false
	}
	return *(*bool)(unsafe.Pointer(field.UnsafeAddr()))
}

// CheckpointLike returns y.Checkpoint() if x is recomputed in the backward pass, and y otherwise. x
// is the input of an operation of this module, and y is its result.
func CheckpointLike(x, y *graph.Node) *graph.Node {
	if IsRecomputed(x) {
		return y.Checkpoint()
	}
	return y
}

// StopCheckpoints calls StopCheckpoint for each node that is recomputed in the backward pass. It
// returns the results and the other nodes in the same order, and whether any node was recomputed.
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
