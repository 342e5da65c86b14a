package strategy

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
)

// What is taken where. Every call that is given "a value" sorts it by sortOf and brings it to the
// strategy by take (or, in a step's graph, by tracing.merged and ReplicaContext.node), so that what
// one call takes the next one does not refuse. The calls differ in what they need of it alone: one
// value for all replicas, or one for each. docs/from-tensorflow.md has the table.

// sort is the sort of thing that a caller gave.
type sort int

const (
	sortNothing   sort = iota // nil, or a nil pointer
	sortHost                  // a tensor of this process, a number, a bool, slices of them
	sortShape                 // a shape, ahead of time
	sortNest                  // a slice, map or struct of others
	sortNode                  // a node of a graph
	sortMerged                // a value in a merge call of a step
	sortComponent             // one replica's part of a value or a variable
	sortVariable
	sortMirrored
	sortPerReplica
	sortStacked
	sortObjects // values that are no tensors
	sortOther   // text, a pointer, ...
)

// sortOf says what a caller gave.
func sortOf(x any) sort {
	switch x := x.(type) {
	case nil:
		return sortNothing
	case *tensors.Tensor:
		return kindOrNothing(x == nil, sortHost)
	case shapes.Shape:
		return sortShape
	case *graph.Node:
		return kindOrNothing(x == nil, sortNode)
	case *Merged:
		return kindOrNothing(x == nil, sortMerged)
	case *Component:
		return kindOrNothing(x == nil || x.variable == nil && x.value == nil, sortComponent)
	case *Variable:
		return kindOrNothing(x == nil, sortVariable)
	case *Mirrored:
		return kindOrNothing(x == nil, sortMirrored)
	case *PerReplica:
		return kindOrNothing(x == nil, sortPerReplica)
	case *Stacked:
		return kindOrNothing(x == nil, sortStacked)
	case *Objects:
		return kindOrNothing(x == nil, sortObjects)
	}
	switch t := reflect.TypeOf(x); {
	case nesting.Is(t):
		return sortNest
	case t.Kind() == reflect.String:
		return sortOther
	}
	return sortHost // or other: what it is made of says so
}

func kindOrNothing(none bool, s sort) sort {
	if none {
		return sortNothing
	}
	return s
}

// taken is what a call was given, as the call works with it: a tensor of this process, or a value
// of the strategy on its devices.
type taken struct {
	host  *tensors.Tensor
	value Value
	made  bool // the value is the call's to close
}

func (t taken) release() error {
	if t.made {
		return t.value.Close()
	}
	return nil
}

// take brings what a caller gave to the strategy. A variable gives its value, or its components
// where they may differ; a component gives the replica's tensor, one for all; what is another
// strategy's gives its value across that one's replicas, if all devices of this one hold it.
func (s *TPUStrategy) take(ctx context.Context, op string, x any) (taken, error) {
	switch sortOf(x) {
	case sortComponent:
		return s.takeComponent(ctx, op, x.(*Component))
	case sortVariable:
		v := x.(*Variable)
		if v.strategy != s {
			return s.borrow(ctx, op, v.strategy, v)
		}
		if s.devices == nil { // ahead of time there are no contents
			value, err := s.newValue(v.perReplica(), v.dtype, v.shape, v.annotation, nil)
			return taken{value: value, made: true}, err
		}
		value, err := v.snapshot(ctx)
		return taken{value: value, made: true}, err
	case sortMirrored, sortPerReplica, sortStacked:
		v := x.(Value)
		if of := v.base().strategy; of != s {
			if v.base().differs() {
				return taken{}, s.owns(v)
			}
			return s.borrow(ctx, op, of, v)
		}
		return taken{value: v}, nil
	}
	host, err := takeHost(op, x)
	return taken{host: host}, err
}

// takeHost makes a tensor of what is in this process's memory. Other kinds of things are errors
// that say where they belong.
func takeHost(op string, x any) (*tensors.Tensor, error) {
	refuse := func(kind Kind, reason, hint string) error {
		return &Error{Op: "strategy: " + op, Reason: reason, Hint: hint, Class: kind}
	}
	switch sortOf(x) {
	case sortNothing:
		return nil, refuse(TypeError, "no value", "give a number, a tensor or a distributed value")
	case sortNode, sortMerged:
		return nil, &ContextError{Op: op, Reason: fmt.Sprintf("given a %T, which lives while its step is traced", x), Hint: "return it from the step, and give the step's result"}
	case sortObjects:
		return nil, refuse(TypeError, fmt.Sprintf("values that are no tensors: %s", x), "return tensors from the replicas")
	case sortShape:
		return nil, refuse(TypeError, "a shape, which has no contents", "give a tensor")
	case sortNest:
		return nil, refuse(TypeError, fmt.Sprintf("a nest, %T", x), "give its leaves one by one")
	}
	t, err := hostTensor(x)
	if err != nil {
		return nil, &Error{Op: "strategy: " + op, Reason: fmt.Sprintf("a value of type %T", x), Hint: "give a number, a tensor or a distributed value", Err: err, Class: TypeError}
	}
	return t, nil
}

// lifts says whether something is to be taken for a value: what is neither the strategy's own value
// nor this process's.
func (s *TPUStrategy) lifts(x any) bool {
	switch x := x.(type) {
	case *Component:
		return sortOf(x) == sortComponent
	case *Variable:
		return x != nil
	case *Mirrored:
		return x != nil && x.base().strategy != s
	case *PerReplica:
		return x != nil && x.base().strategy != s && !x.differs()
	}
	return false
}

// taking refuses a leaf that is nobody's, or another strategy's and not to be borrowed.
func (s *TPUStrategy) taking(op string, x any) error {
	if s.lifts(x) {
		return nil
	}
	return s.ownsLeaf(op, x)
}

// lift takes those of several arguments that lifts names; the others stay as they are. release
// closes what was made.
func (s *TPUStrategy) lift(ctx context.Context, op string, args []any) (lifted []any, release func(), err error) {
	for _, arg := range args {
		if s.lifts(arg) {
			return s.liftSome(ctx, op, args)
		}
	}
	return args, nothing, nil
}

func nothing() {}

func (s *TPUStrategy) liftSome(ctx context.Context, op string, args []any) (lifted []any, release func(), err error) {
	var made []Value
	lifted = append([]any(nil), args...)
	release = func() {
		for _, v := range made {
			_ = v.Close()
		}
	}
	for i, arg := range args {
		if !s.lifts(arg) {
			continue
		}
		t, err := s.take(ctx, op, arg)
		if err == nil && t.value == nil {
			t.value, err = asValue(s.Mirror(ctx, t.host, logical.Annotation{}))
			t.made = true
		}
		if err != nil {
			release()
			return nil, nil, &ArgumentError{Function: op, Argument: i, Reason: fmt.Sprintf("a %T", arg), Err: err}
		}
		lifted[i] = t.value
		if t.made {
			made = append(made, t.value)
		}
	}
	return lifted, release, nil
}

// takeComponent is take of one replica's part.
func (s *TPUStrategy) takeComponent(ctx context.Context, op string, c *Component) (taken, error) {
	of := c.strategy()
	switch {
	case of != s:
		return s.borrow(ctx, op, of, c)
	case c.variable != nil && !c.variable.perReplica():
		value, err := c.variable.snapshot(ctx)
		return taken{value: value, made: true}, err
	case c.variable != nil:
		m, err := c.variable.componentAs(ctx, c.replica, c.variable.annotation)
		return taken{value: m, made: true}, err
	}
	base := c.value.base()
	switch {
	case base.steps > 0:
		return taken{}, fault.New(TypeError, op, "give the result of a step", "a part of a value of several steps")
	case !base.differs() && base.ragged == nil:
		m, err := s.copyAs(ctx, c.value, base.annotation)
		return taken{value: m, made: true}, err
	case base.ragged != nil || s.replicas == 1: // of its own shape
		t, err := c.value.Local(ctx, c.replica)
		return taken{host: t}, err
	}
	m, err := s.partOf(ctx, c.value, c.replica)
	return taken{value: m, made: true}, err
}

// partOf is one replica's tensor on all replicas.
func (s *TPUStrategy) partOf(ctx context.Context, v Value, replica int) (*Mirrored, error) {
	of, err := s.Mirror(ctx, int32(replica), logical.Annotation{})
	if err != nil {
		return nil, err
	}
	defer of.Close()
	return s.callOne(ctx, builtinCall{
		name: "part", values: []Value{v, of}, mirrored: true, results: one(v.Annotation()),
		step: func(rc *ReplicaContext, _ []*captured, in []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.of(in[1], in[0])}
		},
	})
}

// strategy is whose part it is.
func (c *Component) strategy() *TPUStrategy {
	if c.variable != nil {
		return c.variable.strategy
	}
	return c.value.base().strategy
}

// takeOne is take of what is one value for all replicas: one that may differ between them is an
// error.
func (s *TPUStrategy) takeOne(ctx context.Context, op string, x any) (taken, error) {
	if v, ok := x.(*Variable); ok && v != nil && v.strategy == s && v.perReplica() {
		m, err := v.readAs(withMode(ctx, mode{strategy: s, update: -1}), v.annotation)
		if err != nil {
			return taken{}, err
		}
		return taken{value: m, made: true}, nil
	}
	t, err := s.take(ctx, op, x)
	if err != nil || t.value == nil {
		return t, err
	}
	base := t.value.base()
	switch {
	case base.steps > 0:
		err = fault.New(TypeError, op, "give the result of a step", "a value of several steps")
	case base.differs() && s.replicas > 1:
		err = fault.New(TypeError, op, "reduce it first", "a PerReplica value where one for all replicas is expected")
	case base.perReplica:
		var m *Mirrored
		if m, err = s.copyAs(ctx, t.value, base.annotation); err == nil {
			err = t.release()
			t = taken{value: m, made: true}
		}
	}
	if err != nil {
		return taken{}, errors.Join(err, t.release())
	}
	return t, nil
}

// takeMirrored is takeOne as a value on the devices.
func (s *TPUStrategy) takeMirrored(ctx context.Context, op string, x any, a logical.Annotation) (m *Mirrored, made bool, err error) {
	t, err := s.takeOne(ctx, op, x)
	if err != nil {
		return nil, false, err
	}
	if t.value != nil {
		return t.value.(*Mirrored), t.made, nil
	}
	m, err = s.Mirror(ctx, t.host, a)
	return m, true, err
}

// spreads says whether a value that is to be copied to the replicas is on devices already.
func (s *TPUStrategy) spreads(x any) bool {
	k := sortOf(x)
	return k == sortComponent || k == sortVariable || k == sortMirrored || k == sortPerReplica
}

// mirrorOf is [TPUStrategy.Mirror] of such a value.
func (s *TPUStrategy) mirrorOf(ctx context.Context, x any, a logical.Annotation) (*Mirrored, error) {
	if v, ok := x.(Value); ok && v.base().strategy == s && v.base().differs() && s.replicas > 1 {
		return nil, fault.New(ValueError, "mirror", "reduce it first, or take one replica's part", "%s, which has a value for each replica", v)
	}
	t, err := s.takeOne(ctx, "mirror", x)
	if err != nil {
		return nil, err
	}
	if t.value == nil {
		return s.Mirror(ctx, t.host, a)
	}
	m, err := s.copyAs(ctx, t.value, a)
	return m, errors.Join(err, t.release())
}

// tensorOf is hostTensor of what may be on devices.
func (s *TPUStrategy) tensorOf(ctx context.Context, x any) (*tensors.Tensor, error) {
	if s.spreads(x) {
		return s.hostOf(ctx, "copy", x)
	}
	return hostTensor(x)
}

// hostOf is takeOne in this process's memory.
func (s *TPUStrategy) hostOf(ctx context.Context, op string, x any) (*tensors.Tensor, error) {
	t, err := s.takeOne(ctx, op, x)
	if err != nil || t.value == nil {
		return t.host, err
	}
	host, err := s.toHost(ctx, t.value.(*Mirrored))
	return host, errors.Join(err, t.release())
}
