package strategy

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
)

// Objects is a per-replica value that is no tensor: one Go value for each replica,
// in replica order. It is immutable.
type Objects struct{ values []any }

// NewObjects makes one of the replicas' values.
func NewObjects(values ...any) *Objects { return &Objects{values: append([]any(nil), values...)} }

// At returns a replica's value.
func (o *Objects) At(replica int) any { return o.values[replica] }

// Len is the number of replicas.
func (o *Objects) Len() int { return len(o.values) }

// String lists the values.
func (o *Objects) String() string { return fmt.Sprintf("PerReplica%v", o.values) }

// Regroup turns one nest for each replica, all of one structure, into one nest of
// distributed values: what a run returns. A leaf that is the same object on every
// replica stays that object; the components of one distributed value or variable,
// in order, become it again; tensors and numbers become a *[PerReplica] on the
// devices; other values an *[Objects]. Sameness is identity for pointers, and
// equality for values without identity, such as numbers and strings. The nests'
// structures must match: otherwise the error is an [*Error] of kind
// AssertionError.
//
// A nest is made of slices and maps of any (or of nests) and of structs with such
// fields, all exported.
func (s *TPUStrategy) Regroup(ctx context.Context, nests []any) (any, error) {
	if err := untraced(ctx, "regroup", insteadOfWrapping); err != nil {
		return nil, err
	}
	return s.regroup(ctx, "regroup", nests, false)
}

func (s *TPUStrategy) regroup(ctx context.Context, op string, nests []any, alwaysWrap bool) (any, error) {
	if len(nests) != s.replicas {
		return nil, fault.New(ValueError, op, "give one for each replica", "%d nests for %d replicas", len(nests), s.replicas)
	}
	return nesting.Zip(op, nests, func(path string, leaves []any) (any, error) {
		if !alwaysWrap {
			if out, ok := asOne(leaves); ok {
				return out, nil
			}
		}
		return s.wrap(ctx, op, path, leaves, false, logical.Annotation{})
	})
}

// group regroups what an update's functions returned: tensors that are equal on all
// components are one mirrored value.
func (s *TPUStrategy) group(ctx context.Context, op string, nests []any) (any, error) {
	return nesting.Zip(op, nests, func(path string, leaves []any) (any, error) {
		if out, ok := asOne(leaves); ok {
			return out, nil
		}
		return s.wrap(ctx, op, path, leaves, true, logical.Annotation{})
	})
}

// asOne returns the one object that the leaves are or are components of.
func asOne(leaves []any) (any, bool) {
	if whole, ok := containerOf(leaves); ok {
		return whole, true
	}
	for _, x := range leaves[1:] {
		if !nesting.Same(leaves[0], x) {
			return nil, false
		}
	}
	return leaves[0], true
}

// containerOf returns what the leaves are the components of, in order.
func containerOf(leaves []any) (any, bool) {
	first, ok := leaves[0].(*Component)
	if !ok || first == nil {
		return nil, false
	}
	for r, x := range leaves {
		c, ok := x.(*Component)
		if !ok || c == nil || c.variable != first.variable || c.value != first.value || c.replica != r {
			return nil, false
		}
	}
	if first.variable != nil {
		return first.variable, true
	}
	return first.value, true
}

// wrap makes a per-replica value of leaves, laid out as a says; a mirrored one of equal
// tensors, if equal is set.
func (s *TPUStrategy) wrap(ctx context.Context, op, path string, leaves []any, equal bool, a logical.Annotation) (any, error) {
	all := make([]*tensors.Tensor, len(leaves))
	for r, x := range leaves {
		var err error
		switch x := x.(type) {
		case *Component:
			if err := s.ownsLeaf(op, x); err != nil {
				return nil, err
			}
			if all[r], err = x.Local(ctx); err != nil {
				return nil, err
			}
			continue
		case nil, string, Value, *Variable, *Objects:
			return NewObjects(leaves...), nil
		}
		if all[r], err = hostTensor(leaves[r]); err != nil {
			return NewObjects(leaves...), nil
		}
	}
	if equal && !slices.ContainsFunc(all, func(t *tensors.Tensor) bool { return !equalTensors(all[0], t) }) {
		return s.Mirror(ctx, all[0], a)
	}
	v, err := s.perReplicaOf(ctx, all, a)
	if err != nil {
		return nil, fmt.Errorf("strategy: %s%s: %w", op, path, err)
	}
	return v, nil
}

// SelectReplica is a replica's part of a nest: the replica's component of each
// distributed value, all else as it is. Variables stay whole. It is the inverse of
// [TPUStrategy.Regroup].
func (s *TPUStrategy) SelectReplica(replica int, nest any) (any, error) {
	if replica < 0 || replica >= s.replicas {
		return nil, fault.New(ValueError, "select", "count from 0", "replica %d of %d", replica, s.replicas)
	}
	return nesting.Map("select", nest, func(path string, x any) (any, error) {
		switch x := x.(type) {
		case Value:
			if isNil(x) {
				return nil, fault.New(TypeError, "select", "give a value", "no value at %q", path)
			}
			if err := s.owns(x); err != nil {
				return nil, err
			}
			return s.component(x, replica), nil
		case *Objects:
			if x == nil {
				return nil, fault.New(TypeError, "select", "give a value", "no value at %q", path)
			}
			if x.Len() != s.replicas {
				return nil, fault.New(ValueError, "select", "give one for each replica", "%d objects for %d replicas", x.Len(), s.replicas)
			}
			return x.At(replica), nil
		}
		return x, nil
	})
}

// Component returns a replica's part of a value, the same object each time.
func (s *TPUStrategy) Component(value Value, replica int) (*Component, error) {
	if err := s.owns(value); err != nil {
		return nil, err
	}
	x, err := s.SelectReplica(replica, value)
	if err != nil {
		return nil, err
	}
	return x.(*Component), nil
}

// LocalResultsOf is TensorFlow's experimental_local_results of any nest: one nest
// for each replica with the components of its distributed values and variables,
// also if it has none of them. What is no nest, but one host value, gives itself,
// once. Nothing is copied; [TPUStrategy.LocalResults] reads one value.
func (s *TPUStrategy) LocalResultsOf(nest any) ([]any, error) {
	if o, ok := nest.(*Objects); ok && o != nil {
		return slices.Clone(o.values), nil // as many as were made
	}
	if m, ok := nest.(*Merged); ok && m != nil {
		return m.localResults()
	}
	single := false
	if _, err := nesting.Map("local results", nest, func(path string, x any) (any, error) {
		switch x.(type) {
		case *Merged:
			return nil, fault.New(TypeError, "local results", "take them one by one", "a nest of merged values at %q", path)
		case Value, *Objects, *Variable:
		default:
			single = path == ""
		}
		return nil, nil
	}); err != nil {
		return nil, err
	}
	if single {
		return []any{nest}, nil
	}
	results := make([]any, s.replicas)
	for r := range results {
		selected, err := s.SelectReplica(r, nest)
		if err != nil {
			return nil, err
		}
		results[r], err = nesting.Map("local results", selected, func(_ string, x any) (any, error) {
			if v, ok := x.(*Variable); ok {
				if err := s.ownsVariable("local results", v); err != nil {
					return nil, err
				}
				return v.Component(r)
			}
			return x, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// ValueContext tells a function of [TPUStrategy.ValuesFromFunction] which
// replica's value it makes.
type ValueContext struct{ ReplicaIDInSyncGroup, NumReplicasInSync int }

// String describes the context.
func (c ValueContext) String() string {
	return fmt.Sprintf("ValueContext(replica id %d, total replicas in sync: %d)", c.ReplicaIDInSyncGroup, c.NumReplicasInSync)
}

// ValuesFromFunction calls fn once for each replica, in order, and regroups what it
// returns: TensorFlow's experimental_distribute_values_from_function. Every leaf
// is wrapped, one that is the same object on all replicas too. A panic of fn is a
// [*PanicError].
func (s *TPUStrategy) ValuesFromFunction(ctx context.Context, fn func(ValueContext) (any, error)) (any, error) {
	if err := s.requireEager(ctx, "values from function", insteadOfGiving); err != nil {
		return nil, err
	}
	nests := make([]any, s.replicas)
	for r := range nests {
		var err error
		c := ValueContext{ReplicaIDInSyncGroup: r, NumReplicasInSync: s.replicas}
		if nests[r], err = guarded("the function", func() (any, error) { return fn(c) }); err != nil {
			return nil, fmt.Errorf("strategy: values from function: replica %d: %w", r, err)
		}
	}
	return s.regroup(ctx, "values from function", nests, true)
}

// Group waits until every distributed value and variable of a nest is computed:
// TensorFlow's group.
func (s *TPUStrategy) Group(ctx context.Context, nest any) error {
	if err := untraced(ctx, "group", insteadOfWaiting); err != nil {
		return err
	}
	_, err := nesting.Map("group", nest, func(_ string, x any) (any, error) {
		if err := s.ownsLeaf("group", x); err != nil {
			return nil, err
		}
		switch x := x.(type) {
		case Value:
			return nil, x.Ready(ctx)
		case *Variable:
			return nil, x.Ready(ctx)
		case *Component:
			if x.value != nil {
				return nil, x.value.Ready(ctx)
			}
			return nil, x.variable.Ready(ctx)
		}
		return nil, nil
	})
	return err
}
