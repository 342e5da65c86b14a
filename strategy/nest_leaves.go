package strategy

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/nest"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
)

// anyMembers is the hint for a value that is no nest and has members.
const anyMembers = "make it a nest: slices, maps and structs whose members are of type any"

// nestLeaf says what a leaf of the arguments is. wrong lacks its place.
func (s *TPUStrategy) nestLeaf(x any) (static any, isTensor bool, wrong *ArgumentError) {
	switch x := x.(type) {
	case Value:
		if !isNil(x) {
			if _, err := x.base().live(); errors.Is(err, ErrClosed) {
				return nil, false, &ArgumentError{Reason: "closed", Err: err}
			}
		}
		return nil, true, nil
	case *tensors.Tensor, shapes.Shape:
		return nil, true, nil
	case *Variable:
		if x == nil {
			return nil, false, &ArgumentError{Reason: "no variable: a nil pointer"}
		}
		if _, ok := partitionsIn(s.machine, x.strategy.machine); x.strategy != s && !ok {
			err := x.ownedBy(s, "run")
			return nil, false, &ArgumentError{Reason: "a variable of another strategy", Err: err}
		}
		return x, false, nil
	case part:
		if operandOf(x).kind == noOperand {
			return nil, false, &ArgumentError{Reason: "no component: a nil pointer, or a component of nothing"}
		}
		return nil, true, nil
	case *graph.Node:
		return nil, false, &ArgumentError{Reason: "a node of a graph", Hint: "give a value or a host tensor; a step has nodes of its own"}
	case *Objects:
		if x == nil || x.Len() != s.replicas {
			return nil, false, &ArgumentError{Reason: "not an object for each replica", Hint: fmt.Sprintf("give %d", s.replicas)}
		}
		for r := 1; r < x.Len(); r++ {
			if !nesting.Same(x.At(r), x.At(0)) {
				return nil, false, &ArgumentError{
					Reason: fmt.Sprintf("the object of replica %d is not that of replica 0, and one trace stands for all replicas", r),
					Hint:   "give each replica a tensor, or run eager code with eager.Extended.CallForEachReplica"}
			}
		}
		return x.At(0), false, staticLeaf(x.At(0))
	}
	if isTensorType(reflect.TypeOf(x)) {
		return nil, true, nil
	}
	return x, false, staticLeaf(x)
}

// isTensorType reports whether host values of the type are tensors: numbers, bools and slices of
// them, not of named types.
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

// staticLeaf refuses what cannot tell one signature from another, or has tensors in it that the
// step would not see as nodes.
func staticLeaf(x any) *ArgumentError {
	v := reflect.ValueOf(x)
	switch {
	case !v.IsValid() || v.Kind() == reflect.Func:
		return nil
	case !v.Comparable():
		return &ArgumentError{Reason: fmt.Sprintf("a %T, which is no tensor, no nest, and cannot be compared", x), Hint: anyMembers}
	case v.Kind() == reflect.Pointer && nesting.Is(v.Type().Elem()):
		return &ArgumentError{Reason: fmt.Sprintf("a %T, which would be compared as a pointer", x), Hint: "give the nest itself"}
	case holds(v, 0, isTensorObject):
		return &ArgumentError{Reason: fmt.Sprintf("a %T: it is no nest, and it has tensors in it", x), Hint: anyMembers}
	}
	return nil
}

func isTensorObject(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[*tensors.Tensor](), reflect.TypeFor[*graph.Node]():
		return true
	}
	return t.Implements(reflect.TypeFor[Value]()) || t.Implements(reflect.TypeFor[part]())
}

// holds reports whether a value has something of a type in it. Pointers are not followed.
func holds(v reflect.Value, depth int, wanted func(reflect.Type) bool) bool {
	if !v.IsValid() || depth > nest.MaxDepth {
		return false
	}
	if wanted(v.Type()) {
		return true
	}
	switch v.Kind() {
	case reflect.Interface:
		return holds(v.Elem(), depth+1, wanted)
	case reflect.Struct:
		for i := range v.NumField() {
			if holds(v.Field(i), depth+1, wanted) {
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
			if holds(v.Index(i), depth+1, wanted) {
				return true
			}
		}
	case reflect.Map:
		if wanted(v.Type().Elem()) {
			return true
		}
		for _, member := range v.Seq2() {
			if holds(member, depth+1, wanted) {
				return true
			}
		}
	}
	return false
}

// Objects is a per-replica value that is no tensor: one Go value for each replica, in replica
// order, like the tf.distribute.DistributedValues of such objects in TensorFlow. It is immutable.
type Objects struct{ values []any }

// NewObjects returns the Objects of the replicas' values, given in replica order.
func NewObjects(values ...any) *Objects { return &Objects{values: append([]any(nil), values...)} }

// At returns the value of a replica, from 0. It panics for a replica that has no value.
func (o *Objects) At(replica int) any { return o.values[replica] }

// Len returns the number of replicas.
func (o *Objects) Len() int { return len(o.values) }

// String lists the values.
func (o *Objects) String() string { return fmt.Sprintf("PerReplica%v", o.values) }
