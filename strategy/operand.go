package strategy

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
)

// A call that accepts "a value" classifies it once with operandOf, and resolves it with
// ReplicaContext.toNode in a step and with operand.resolve elsewhere. All calls therefore accept the
// same types. They differ only in whether they require one value for all replicas or one for each
// replica. docs/tensorflow-values.md has the table.

// operand is an argument of a call together with its kind, such as a host tensor or a variable.
type operand struct {
	x    any // the argument
	kind operandKind
	// node is set for a nodeOperand.
	node *graph.Node
	// value or variable is set for a deviceOperand. replica is the replica of a component,
	// otherwise -1.
	value    Value
	variable *Variable
	replica  int
}

type operandKind int

const (
	noOperand      operandKind = iota // nil, or a nil pointer
	hostOperand                       // a tensor of this process, a number or slices; the conversion may fail
	shapeOperand                      // a shape, ahead of time
	nestOperand                       // a slice, map or struct of other operands
	nodeOperand                       // a node of a graph, or a value of a merge call
	deviceOperand                     // a value, a variable, or a component
	objectsOperand                    // values that are not tensors
)

// component is implemented by the Component of package eager, which represents one replica's tensor
// of a value or a variable.
type component interface {
	Value() Value
	Variable() *Variable
	Replica() int
}

// merged is a tensor in a merge call of package eager. Node returns the graph node, or nil if there
// is no tensor.
type merged interface{ Node() *graph.Node }

// operandOf determines the kind of an argument.
func operandOf(x any) operand {
	o := operand{x: x, replica: -1}
	present := func(ok bool, kind operandKind) {
		if ok {
			o.kind = kind
		}
	}
	switch x := x.(type) {
	case nil:
	case *tensors.Tensor:
		present(x != nil, hostOperand)
	case *Mirrored, *PerReplica, *StackedBatches:
		o.value = x.(Value)
		present(!isNil(o.value), deviceOperand)
	case *Variable:
		o.variable = x
		present(x != nil, deviceOperand)
	case *graph.Node:
		o.node = x
		present(x != nil, nodeOperand)
	case merged:
		o.node = x.Node()
		present(o.node != nil, nodeOperand)
	case *Objects:
		present(x != nil, objectsOperand)
	case shapes.Shape:
		o.kind = shapeOperand
	case component:
		if v := reflect.ValueOf(x); v.Kind() == reflect.Pointer && v.IsNil() {
			break
		}
		o.value, o.variable, o.replica = x.Value(), x.Variable(), x.Replica()
		present(o.variable != nil || !isNil(o.value), deviceOperand)
	default:
		o.kind = hostOperand
		if nesting.IsNest(reflect.TypeOf(x)) {
			o.kind = nestOperand
		}
	}
	return o
}

// strategy returns the strategy that owns a deviceOperand, or nil for other operands.
func (o operand) strategy() *TPUStrategy {
	switch {
	case o.kind != deviceOperand:
		return nil
	case o.variable != nil:
		return o.variable.strategy
	}
	return o.value.base().strategy
}

// isValue reports whether the operand is a [Value], and not a variable or a component.
func (o operand) isValue() bool { return o.kind == deviceOperand && o.variable == nil && o.replica < 0 }

// isReadable reports whether the operand can be copied to the host. A [StackedBatches] cannot be
// copied.
func (o operand) isReadable() bool {
	return o.kind == deviceOperand && (!o.isValue() || o.value.base().steps == 0)
}

// needsResolve reports whether the operand must be converted by resolve before a program can use
// it. This is true for a variable, a component, and a mirrored value of another strategy.
func (o operand) needsResolve(s *TPUStrategy) bool {
	of := o.strategy()
	return of != nil && (!o.isValue() || of != s && !o.value.base().isVarying())
}

func (o operand) String() string {
	if o.variable != nil && o.replica < 0 {
		return fmt.Sprintf("variable %q", o.variable.path)
	}
	return fmt.Sprint(o.x)
}

func (o operand) toTensor() (*tensors.Tensor, error) {
	switch o.kind {
	case noOperand:
		return nil, errors.New("no value")
	case nestOperand:
		return nil, fmt.Errorf("a %T is a nest: give its leaves one by one", o.x)
	case nodeOperand:
		return nil, fmt.Errorf(
			"a %T, which lives while its step is traced; return it from the step, and give the step's result", o.x)
	case deviceOperand:
		return nil, fmt.Errorf("a %T, which is on the devices", o.x)
	case objectsOperand:
		return nil, fmt.Errorf("values that are no tensors: %v", o.x)
	case shapeOperand:
		return nil, fmt.Errorf("the shape %v, which has no contents", o.x)
	}
	return hostdata.ToTensor(o.x)
}

func hostTensor(x any) (*tensors.Tensor, error) { return operandOf(x).toTensor() }

// toHostTensor is like toTensor, for calls that also accept values on the devices. Its errors
// mention these values as an alternative.
func (o operand) toHostTensor(op string) (*tensors.Tensor, error) {
	t, err := o.toTensor()
	switch {
	case err == nil:
		return t, nil
	case o.kind == nodeOperand:
		return nil, &Error{Match: ErrContext, Op: "strategy: " + op, Reason: "given " + err.Error()}
	}
	return nil, &Error{Op: "strategy: " + op, Reason: fmt.Sprintf("a value of type %T", o.x),
		Hint: "give a number, a tensor or a distributed value", Err: err, Class: errkind.TypeError}
}

// checkOwnedBy returns an error if the operand is a nil pointer or belongs to another strategy.
func (o operand) checkOwnedBy(s *TPUStrategy, op string) error {
	switch of := o.strategy(); {
	case of == s:
		return nil
	case of != nil:
		return fault.OtherStrategy(op, o.String())
	case o.kind != noOperand:
		return nil
	}
	switch o.x.(type) {
	case Value, *Variable, component:
		return fault.New(errkind.TypeError, op, "give a tensor", "no value")
	}
	return nil
}

// Objects has one Go value for each replica: a per-replica value that is not a tensor. It is
// immutable. In a job with several processes, an Objects from replica code has only the values of
// this process's replicas.
type Objects struct {
	values []any
	local  []int // the replicas whose values are in this process, ascending; nil for all
}

// NewObjects returns Objects with the given values, in replica order.
func NewObjects(values ...any) *Objects { return &Objects{values: append([]any(nil), values...)} }

// At returns the value of a replica. It panics if there is no such replica. For a replica of
// another process it panics with an error that matches [ErrRemote].
func (o *Objects) At(replica int) any {
	x, err := o.localObject(replica)
	if err != nil {
		panic(err)
	}
	return x
}

func (o *Objects) localObject(replica int) (any, error) {
	if o.local != nil && !slices.Contains(o.local, replica) {
		return nil, &errkind.Fault{Op: "strategy: read", Subject: fmt.Sprintf("the object of replica %d", replica),
			Reason: fmt.Sprintf("this process has replicas %v", o.local), Hint: "use Extended.LocalResultsOf",
			Match: ErrRemote}
	}
	return o.values[replica], nil
}

func (o *Objects) Len() int { return len(o.values) }

// String lists the values, with "-" for each value of another process.
func (o *Objects) String() string {
	shown := make([]any, len(o.values))
	for r := range shown {
		x, err := o.localObject(r)
		if shown[r] = x; err != nil {
			shown[r] = "-"
		}
	}
	return fmt.Sprintf("PerReplica%v", shown)
}
