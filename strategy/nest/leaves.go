package nest

import (
	"fmt"
	"reflect"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/internal/nest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// anyMembers is the hint for a value with members that is not a nest.
const anyMembers = "make it a nest: slices, maps and structs whose members are of type any"

// componentLeaf is implemented by eager.Component, which represents one replica's tensor of a value
// or a variable.
type componentLeaf interface {
	Value() strategy.Value
	Variable() *strategy.Variable
	Replica() int
}

// classifyLeaf reports whether a leaf of the arguments is a tensor. If not, it returns the value
// that the step receives for the leaf. Its errors do not contain the position of the leaf.
func classifyLeaf(s *strategy.TPUStrategy, x any) (static any, isTensor bool, wrong *strategy.ArgumentError) {
	if reason, err := engine.Internal(s).CheckLeaf(x); reason != "" {
		return nil, false, &strategy.ArgumentError{Reason: reason, Err: err}
	}
	switch x := x.(type) {
	case strategy.Value, *tensors.Tensor, shapes.Shape, componentLeaf:
		return nil, true, nil
	case *strategy.Variable:
		return x, false, nil
	case *graph.Node:
		return nil, false, &strategy.ArgumentError{Reason: "a node of a graph",
			Hint: "give a value or a host tensor; a step has nodes of its own"}
	case *strategy.Objects:
		if x == nil || x.Len() != s.NumReplicasInSync() {
			return nil, false, &strategy.ArgumentError{Reason: "not an object for each replica",
				Hint: fmt.Sprintf("give %d", s.NumReplicasInSync())}
		}
		for r := 1; r < x.Len(); r++ {
			if !nesting.IsSameLeaf(x.At(r), x.At(0)) {
				return nil, false, &strategy.ArgumentError{
					Reason: fmt.Sprintf("the object of replica %d is not that of replica 0, and one trace stands for all replicas", r),
					Hint:   "give each replica a tensor, or run eager code with eager.Extended.CallForEachReplica"}
			}
		}
		return x.At(0), false, checkStatic(x.At(0))
	}
	if isTensorType(reflect.TypeOf(x)) {
		return nil, true, nil
	}
	return x, false, checkStatic(x)
}

// isTensorType reports whether host values of the type are tensors. Tensors are numbers, bools and
// slices of these. Named types do not count.
func isTensorType(t reflect.Type) bool {
	for t != nil && t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t == nil {
		return false
	}
	dtype := dtypes.FromGoType(t)
	return dtype != dtypes.InvalidDType && (t == dtype.GoType() || t == reflect.TypeFor[int]())
}

// checkStatic returns an error for a value that cannot be compared with ==, or that contains
// tensors that the step would not receive as nodes.
func checkStatic(x any) *strategy.ArgumentError {
	v := reflect.ValueOf(x)
	switch {
	case !v.IsValid() || v.Kind() == reflect.Func:
		return nil
	case !v.Comparable():
		return &strategy.ArgumentError{Reason: fmt.Sprintf("a %T, which is no tensor, no nest, and cannot be compared", x),
			Hint: anyMembers}
	case v.Kind() == reflect.Pointer && nesting.IsNest(v.Type().Elem()):
		return &strategy.ArgumentError{Reason: fmt.Sprintf("a %T, which would be compared as a pointer", x),
			Hint: "give the nest itself"}
	case containsType(v, 0, isTensorObject):
		return &strategy.ArgumentError{Reason: fmt.Sprintf("a %T: it is no nest, and it has tensors in it", x),
			Hint: anyMembers}
	}
	return nil
}

func isTensorObject(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[*tensors.Tensor](), reflect.TypeFor[*graph.Node]():
		return true
	}
	return t.Implements(reflect.TypeFor[strategy.Value]()) || t.Implements(reflect.TypeFor[componentLeaf]())
}

// containsType reports whether a value contains a value of a wanted type. It does not follow
// pointers.
func containsType(v reflect.Value, depth int, wanted func(reflect.Type) bool) bool {
	if !v.IsValid() || depth > nest.MaxDepth {
		return false
	}
	if wanted(v.Type()) {
		return true
	}
	switch v.Kind() {
	case reflect.Interface:
		return containsType(v.Elem(), depth+1, wanted)
	case reflect.Struct:
		for i := range v.NumField() {
			if containsType(v.Field(i), depth+1, wanted) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		if wanted(v.Type().Elem()) {
			return true
		}
		if isTensorType(v.Type().Elem()) {
			return false
		}
		for i := range v.Len() {
			if containsType(v.Index(i), depth+1, wanted) {
				return true
			}
		}
	case reflect.Map:
		if wanted(v.Type().Elem()) {
			return true
		}
		for _, member := range v.Seq2() {
			if containsType(member, depth+1, wanted) {
				return true
			}
		}
	}
	return false
}
