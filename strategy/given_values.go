package strategy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/mode"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
)

// A call that is given "a value" sorts it once, by operandOf, and resolves it: in a step's graph by
// ReplicaContext.node, elsewhere by TPUStrategy.resolve. So no call refuses what another one
// accepts. The calls differ only in what they need of an operand: one value for all replicas, or one
// for each. docs/from-tensorflow.md has the table.

// operand is what a caller gave to a call, sorted by its type.
type operand struct {
	x    any // as it was given
	kind operandKind
	// node is set for a nodeOperand.
	node *graph.Node
	// value or variable is set for a deviceOperand. replica is that of a replica's part of it,
	// otherwise -1.
	value    Value
	variable *Variable
	replica  int
}

type operandKind int

const (
	noOperand      operandKind = iota // nil, or a nil pointer
	hostOperand                       // a tensor of this process, a number, slices; or none, which its conversion says
	shapeOperand                      // a shape, ahead of time
	nestOperand                       // a slice, map or struct of others
	nodeOperand                       // a node of a graph, or a value of a merge call
	deviceOperand                     // a value, a variable, or a replica's part of one
	objectsOperand                    // values that are no tensors
)

// part is a replica's part of a value or of a variable: a component of package eager.
type part interface {
	Value() Value
	Variable() *Variable
	Replica() int
}

// operandOf sorts what a caller gave.
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
	case *Mirrored, *PerReplica, *Stacked:
		o.value = x.(Value)
		present(!isNil(o.value), deviceOperand)
	case *Variable:
		o.variable = x
		present(x != nil, deviceOperand)
	case *graph.Node:
		o.node = x
		present(x != nil, nodeOperand)
	case *Merged:
		if x != nil {
			o.node = x.node
		}
		present(o.node != nil, nodeOperand)
	case *Objects:
		present(x != nil, objectsOperand)
	case shapes.Shape:
		o.kind = shapeOperand
	case part:
		if v := reflect.ValueOf(x); v.Kind() == reflect.Pointer && v.IsNil() {
			break
		}
		o.value, o.variable, o.replica = x.Value(), x.Variable(), x.Replica()
		present(o.variable != nil || !isNil(o.value), deviceOperand)
	default:
		o.kind = hostOperand
		if nesting.Is(reflect.TypeOf(x)) {
			o.kind = nestOperand
		}
	}
	return o
}

// strategy returns whose a deviceOperand is, or nil for any other.
func (o operand) strategy() *TPUStrategy {
	switch {
	case o.kind != deviceOperand:
		return nil
	case o.variable != nil:
		return o.variable.strategy
	}
	return o.value.base().strategy
}

// whole reports whether the operand is a value, and not a replica's part of one.
func (o operand) whole() bool { return o.kind == deviceOperand && o.variable == nil && o.replica < 0 }

// readable reports whether the operand's contents can be copied from the devices: not those of a
// value of several steps.
func (o operand) readable() bool {
	return o.kind == deviceOperand && (!o.whole() || o.value.base().steps == 0)
}

// indirect reports whether the operand has to be resolved before a program can read it: it is a
// variable, a part, or a value of another strategy that has one tensor for all replicas.
func (o operand) indirect(s *TPUStrategy) bool {
	of := o.strategy()
	return of != nil && (!o.whole() || of != s && !o.value.base().differs())
}

// String describes the operand in errors.
func (o operand) String() string {
	if o.variable != nil && o.replica < 0 {
		return fmt.Sprintf("variable %q", o.variable.path)
	}
	return fmt.Sprint(o.x)
}

// tensor makes a tensor of what is in this process's memory.
func (o operand) tensor() (*tensors.Tensor, error) {
	switch o.kind {
	case noOperand:
		return nil, errors.New("no value")
	case nestOperand:
		return nil, fmt.Errorf("a %T is a nest: give its leaves one by one", o.x)
	case nodeOperand:
		return nil, fmt.Errorf("a %T, which lives while its step is traced; return it from the step, and give the step's result", o.x)
	case deviceOperand:
		return nil, fmt.Errorf("a %T, which is on the devices", o.x)
	case objectsOperand:
		return nil, fmt.Errorf("values that are no tensors: %v", o.x)
	case shapeOperand:
		return nil, fmt.Errorf("the shape %v, which has no contents", o.x)
	}
	return hostdata.Tensor(o.x)
}

// hostTensor makes a tensor of a host value.
func hostTensor(x any) (*tensors.Tensor, error) { return operandOf(x).tensor() }

// host is tensor with the error of a call that accepts values of the devices, too.
func (o operand) host(op string) (*tensors.Tensor, error) {
	t, err := o.tensor()
	switch {
	case err == nil:
		return t, nil
	case o.kind == nodeOperand:
		return nil, &ContextError{Op: op, Reason: "given " + err.Error()}
	}
	return nil, &Error{Op: "strategy: " + op, Reason: fmt.Sprintf("a value of type %T", o.x), Hint: "give a number, a tensor or a distributed value", Err: err, Class: TypeError}
}

// copyHost is tensor of what may be on the devices, too.
func (o operand) copyHost(ctx context.Context, s *TPUStrategy) (*tensors.Tensor, error) {
	if o.readable() {
		return o.resolveHost(ctx, s, "copy")
	}
	return o.tensor()
}

// content is an operand as a call works with it: a tensor of this process, or a value of the
// strategy on its devices.
type content struct {
	host  *tensors.Tensor
	value Value
	made  bool // the value is the call's to close
}

// made returns the content that is a value which the call closes.
func made[T Value](v T, err error) (content, error) {
	if err != nil {
		return content{}, err
	}
	return content{value: v, made: true}, nil
}

func (c content) release() error {
	if c.made {
		return c.value.Close()
	}
	return nil
}

// resolve brings an operand to the strategy. A variable gives its value, or its components where
// they may differ. A replica's part gives the replica's tensor, one for all replicas. What another
// strategy has gives its value across that strategy's replicas, if that strategy has all devices of
// this one.
func (o operand) resolve(ctx context.Context, s *TPUStrategy, op string) (content, error) {
	switch of := o.strategy(); {
	case of == nil:
		host, err := o.host(op)
		return content{host: host}, err
	case of != s && o.whole() && o.value.base().differs():
		return content{}, ownedBy(s, o.value)
	case of != s:
		return o.borrow(ctx, s, op)
	case o.replica >= 0:
		return o.resolvePart(ctx, s, op)
	case o.value != nil:
		return content{value: o.value}, nil
	case s.slice != nil: // ahead of time there are no contents
		v := o.variable
		return made(s.newValue(v.perReplica(), v.dtype, v.shape, v.annotation, nil))
	}
	return made(o.variable.snapshot(ctx))
}

// resolvePart is resolve of one replica's part.
func (o operand) resolvePart(ctx context.Context, s *TPUStrategy, op string) (content, error) {
	if v := o.variable; v != nil {
		if v.perReplica() {
			return made(o.part(ctx, s, v.annotation))
		}
		return made(v.snapshot(ctx))
	}
	base := o.value.base()
	switch {
	case base.steps > 0:
		return content{}, fault.New(TypeError, op, "give the result of a step", "a part of a value of several steps")
	case !base.differs() && base.ragged == nil:
		return made(copyAs(ctx, o.value, base.annotation))
	case base.ragged != nil || s.replicas == 1: // of its own shape
		t, err := o.value.Local(ctx, o.replica)
		return content{host: t}, err
	}
	return made(o.part(ctx, s, base.annotation))
}

// part copies one replica's part to all replicas, split over the logical devices as a says.
func (o operand) part(ctx context.Context, s *TPUStrategy, a logical.Annotation) (*Mirrored, error) {
	replica, err := s.Mirror(ctx, int32(o.replica), logical.Annotation{})
	if err != nil {
		return nil, err
	}
	defer replica.Close()
	c := builtinCall{name: "part", values: []Value{replica}, mirrored: true, results: one(a)}
	if v := o.variable; v != nil {
		c.variables = []*Variable{v}
		c.step = func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.of(in[0], rc.Read(v))}
		}
	} else {
		c.values = append(c.values, o.value)
		c.step = func(rc *ReplicaContext, in []*graph.Node) []*graph.Node { return []*graph.Node{rc.of(in[0], in[1])} }
	}
	return c.one(ctx, s)
}

// resolveOne is resolve of what is one value for all replicas. A value that may differ between the
// replicas is an error.
func (o operand) resolveOne(ctx context.Context, s *TPUStrategy, op string) (content, error) {
	if v := o.variable; v != nil && v.strategy == s && o.replica < 0 && v.perReplica() {
		return made(v.readAs(mode.With(ctx, mode.Cross(s)), v.annotation))
	}
	c, err := o.resolve(ctx, s, op)
	if err != nil || c.value == nil {
		return c, err
	}
	base := c.value.base()
	switch {
	case base.steps > 0:
		err = fault.New(TypeError, op, "give the result of a step", "a value of several steps")
	case base.differs() && s.replicas > 1:
		err = fault.New(TypeError, op, "reduce it first", "a PerReplica value where one for all replicas is expected")
	case base.perReplica:
		var m *Mirrored
		if m, err = copyAs(ctx, c.value, base.annotation); err == nil {
			err = c.release()
			c = content{value: m, made: true}
		}
	}
	if err != nil {
		return content{}, errors.Join(err, c.release())
	}
	return c, nil
}

// resolveMirrored is resolveOne as a value on the devices, which a tensor is laid out on as a says.
func (o operand) resolveMirrored(ctx context.Context, s *TPUStrategy, op string, a logical.Annotation) (content, error) {
	c, err := o.resolveOne(ctx, s, op)
	if err != nil || c.value != nil {
		return c, err
	}
	return made(s.Mirror(ctx, c.host, a))
}

// resolveHost is resolveOne in this process's memory.
func (o operand) resolveHost(ctx context.Context, s *TPUStrategy, op string) (*tensors.Tensor, error) {
	c, err := o.resolveOne(ctx, s, op)
	if err != nil || c.value == nil {
		return c.host, err
	}
	host, err := c.value.(*Mirrored).toHost(ctx)
	return host, errors.Join(err, c.release())
}

// resolveArguments resolves the indirect ones of several arguments; the others stay as they are.
// release closes what was made.
func resolveArguments(ctx context.Context, s *TPUStrategy, op string, args []any) (resolved []any, release func(), err error) {
	if !slices.ContainsFunc(args, func(x any) bool { return operandOf(x).indirect(s) }) {
		return args, nothing, nil // without an allocation
	}
	var copies []Value
	release = func() {
		for _, v := range copies {
			_ = v.Close()
		}
	}
	resolved = slices.Clone(args)
	for i, arg := range args {
		o := operandOf(arg)
		if !o.indirect(s) {
			continue
		}
		v, err := o.resolveArgument(ctx, s, op)
		if err != nil {
			release()
			return nil, nil, &ArgumentError{Function: op, Argument: i, Reason: fmt.Sprintf("a %T", arg), Err: err}
		}
		resolved[i], copies = v, append(copies, v)
	}
	return resolved, release, nil
}

func nothing() {}

// resolveArgument makes a value of an indirect operand, for the caller to close.
func (o operand) resolveArgument(ctx context.Context, s *TPUStrategy, op string) (Value, error) {
	c, err := o.resolve(ctx, s, op)
	if err != nil || c.value != nil {
		return c.value, err
	}
	return asValue(s.Mirror(ctx, c.host, logical.Annotation{}))
}

// mirrorOperand is [TPUStrategy.Mirror] of what is on devices already.
func (o operand) mirror(ctx context.Context, s *TPUStrategy, a logical.Annotation) (*Mirrored, error) {
	if o.whole() && o.strategy() == s && o.value.base().differs() && s.replicas > 1 {
		return nil, fault.New(ValueError, "mirror", "reduce it first, or take one replica's part", "%s, which has a value for each replica", o)
	}
	c, err := o.resolveOne(ctx, s, "mirror")
	if err != nil {
		return nil, err
	}
	if c.value == nil {
		return s.Mirror(ctx, c.host, a)
	}
	m, err := copyAs(ctx, c.value, a)
	return m, errors.Join(err, c.release())
}
