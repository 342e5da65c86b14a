package eager

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Regroup combines one nest for each replica of this process, in the order of
// [strategy.TPUStrategy.LocalReplicas], into one nest of distributed values, as TensorFlow's
// Strategy.run does with the results of the replicas. Nests with different structures are an
// [*strategy.Error] of kind AssertionError. A leaf that is the same object on every replica becomes
// that object. The components of one distributed value or variable, in order, become this value or
// variable. Tensors and numbers become a *[strategy.PerReplica] on the devices. Other values become
// an *[strategy.Objects]. Pointers are the same object if they are identical; numbers and strings
// are the same object if they are equal.
//
// In a job with several processes, all processes must call Regroup together. Pointers of different
// processes are different objects: tensors become a PerReplica even if each process returns one
// tensor for all its replicas.
//
// A nest, TensorFlow's tf.nest, consists of slices and maps of any (or of nests) and of structs
// with such fields, all exported.
func (e *Extended) Regroup(ctx context.Context, nests []any) (any, error) {
	if err := strategy.RefuseTracing(ctx, "regroup", fault.InsteadOfWrapping); err != nil {
		return nil, err
	}
	var failed error
	if n := len(e.localReplicas()); len(nests) != n {
		failed = fault.New(errkind.ValueError, "regroup", "pass one for each replica of this process",
			"%d nests for %d replicas", len(nests), n)
	}
	nests, err := e.localNests(ctx, "regroup", nests, failed)
	if err != nil {
		return nil, err
	}
	return e.regroup(ctx, "regroup", nests, false)
}

// regroup combines one nest for each replica into one nest of distributed values. If equal is set,
// tensors that are equal on all replicas become one mirrored value. The results of update functions
// are combined in this way.
func (e *Extended) regroup(ctx context.Context, op string, nests []any, equal bool) (any, error) {
	return nesting.Zip(op, nests, func(path string, leaves []any) (any, error) {
		if out, ok := commonValue(leaves); ok {
			return out, nil
		}
		return e.combineLeaves(ctx, op, path, leaves, equal)
	})
}

// commonValue returns the object if all leaves are the same object. If the leaves are the
// components of one value or variable, it returns this value or variable.
func commonValue(leaves []any) (any, bool) {
	if container, ok := containerOf(leaves); ok {
		return container, true
	}
	for _, x := range leaves[1:] {
		if !nesting.IsSameLeaf(leaves[0], x) {
			return nil, false
		}
	}
	return leaves[0], true
}

// containerOf returns the value or variable if the leaves are its components in replica order.
func containerOf(leaves []any) (any, bool) {
	first, ok := leaves[0].(Component)
	if !ok || first == (Component{}) {
		return nil, false
	}
	for r, x := range leaves {
		if x != (Component{value: first.value, variable: first.variable, replica: r}) {
			return nil, false
		}
	}
	return first.source(), true
}

// combineLeaves combines one leaf for each replica into a per-replica value. If equal is set, equal
// tensors are combined into a mirrored value. Leaves that are not tensors are combined into an
// Objects.
func (e *Extended) combineLeaves(ctx context.Context, op, path string, leaves []any, equal bool) (any, error) {
	s := e.strategy
	ids := e.localReplicas()
	all, of := make([]*tensors.Tensor, len(leaves)), make([]shapes.Shape, len(leaves))
	for r, x := range leaves {
		var err error
		switch x := x.(type) {
		case Component:
			if err := engine.Internal(s).CheckOwned(op, x); err != nil {
				return nil, err
			}
			of[r] = x.Shape()
			if _, here := slices.BinarySearch(ids, r); here {
				if all[r], err = x.Local(ctx); err != nil {
					return nil, err
				}
			}
			continue
		case *remoteLeaf:
			if of[r] = x.shape; x.shape.Ok() {
				continue
			}
			return e.objects(leaves), nil
		case nil, string, strategy.Value, *strategy.Variable, *strategy.Objects:
			return e.objects(leaves), nil
		}
		if all[r], err = hostdata.ToTensor(leaves[r]); err != nil {
			return e.objects(leaves), nil
		}
		of[r] = all[r].Shape()
	}
	if equal {
		first, err := e.equalOnAll(ctx, op, all)
		switch {
		case err != nil:
			return nil, err
		case first != nil:
			return s.Mirror(ctx, first, logical.Annotation{})
		}
	}
	v, err := engine.Internal(s).NewPerReplica(ctx, all, of, logical.Annotation{})
	if err != nil {
		return nil, fault.Wrap(fmt.Sprintf("%s%s", op, path), err, "")
	}
	return v, nil
}

func (e *Extended) objects(leaves []any) *strategy.Objects {
	if e.strategy.NumProcesses() < 2 {
		return strategy.NewObjects(leaves...)
	}
	return engine.Internal(e.strategy).NewObjects(leaves)
}

// equalOnAll returns the common tensor if the tensors of all replicas are equal, and otherwise nil.
// The entry of a replica of another process is nil. All processes must call equalOnAll.
func (e *Extended) equalOnAll(ctx context.Context, op string, all []*tensors.Tensor) (*tensors.Tensor, error) {
	ids := e.localReplicas()
	first := all[ids[0]]
	var digest []byte // digest of the tensor, if all of this process's replicas have the same
	if first != nil && !slices.ContainsFunc(ids, func(r int) bool {
		return all[r] == nil ||
			!equalTensors(first, all[r])
	}) {
		if e.strategy.NumProcesses() < 2 {
			return first, nil
		}
		if err := first.ConstBytes(func(data []byte) {
			sum := sha256.Sum256(data)
			digest = fmt.Appendf(sum[:], "%s", first.Shape())
		}); err != nil {
			return nil, err
		}
	}
	if e.strategy.NumProcesses() < 2 {
		return nil, nil
	}
	digests, err := e.strategy.GatherBytes(ctx, "equal values of "+op, digest)
	if err != nil || slices.ContainsFunc(digests, func(d []byte) bool {
		return len(d) == 0 ||
			!bytes.Equal(d, digest)
	}) {
		return nil, err
	}
	return first, nil
}

// SelectReplica returns the nest of one replica. It replaces each distributed value by the
// replica's component, and each *[strategy.Objects] by the replica's object. All other leaves are
// unchanged, including variables. It is the inverse of [Extended.Regroup].
func (e *Extended) SelectReplica(replica int, nest any) (any, error) {
	s := e.strategy
	if replica < 0 || replica >= s.NumReplicasInSync() {
		return nil, fault.New(errkind.ValueError, "select", "count from 0", "replica %d of %d", replica,
			s.NumReplicasInSync())
	}
	return nesting.Map("select", nest, func(path string, x any) (any, error) {
		switch x := x.(type) {
		case strategy.Value:
			if err := engine.Internal(s).CheckOwned("select"+path, x); err != nil {
				return nil, err
			}
			return Component{value: x, replica: replica}, nil
		case *strategy.Objects:
			if x == nil {
				return nil, fault.New(errkind.TypeError, "select", "give a value", "no value at %q", path)
			}
			if x.Len() != s.NumReplicasInSync() {
				return nil, fault.New(errkind.ValueError, "select", "give one for each replica",
					"%d objects for %d replicas", x.Len(), s.NumReplicasInSync())
			}
			return engine.Internal(s).ObjectAt(x, replica)
		}
		return x, nil
	})
}

// LocalResultsOf returns one nest for each replica of this process, in the order of
// [strategy.TPUStrategy.LocalReplicas]. In each nest, the distributed values and variables are
// replaced by the replica's components. It corresponds to TensorFlow's experimental_local_results.
// For a host value it returns a slice with only this value. No data is copied;
// [strategy.TPUStrategy.LocalResults] copies tensors to the host.
func (e *Extended) LocalResultsOf(nest any) ([]any, error) {
	s := e.strategy
	if o, ok := nest.(*strategy.Objects); ok && o != nil && o.Len() != s.NumReplicasInSync() {
		values := make([]any, o.Len()) // as many as were passed to NewObjects
		for r := range values {
			values[r] = o.At(r)
		}
		return values, nil
	}
	if m, ok := nest.(*MergeValue); ok && m != nil {
		return localMergeValues(m)
	}
	single := false
	if _, err := nesting.Map("local results", nest, func(path string, x any) (any, error) {
		switch x.(type) {
		case *MergeValue:
			return nil, fault.New(errkind.TypeError, "local results", "take them one by one",
				"a nest of merged values at %q", path)
		case strategy.Value, *strategy.Objects, *strategy.Variable:
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
	ids := e.localReplicas()
	results := make([]any, len(ids))
	for i, r := range ids {
		selected, err := e.SelectReplica(r, nest)
		if err != nil {
			return nil, err
		}
		results[i], err = nesting.Map("local results", selected, func(_ string, x any) (any, error) {
			if v, ok := x.(*strategy.Variable); ok {
				if err := engine.Internal(s).CheckOwned("local results", v); err != nil {
					return nil, err
				}
				return Component{variable: v, replica: r}, nil
			}
			return x, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// localMergeValues returns the tensors of the replicas as separate values in a merge call.
func localMergeValues(m *MergeValue) ([]any, error) {
	return fault.CatchPanic(func() []any {
		if m.mc == nil {
			panic(fault.New(errkind.TypeError, "LocalResults", "give values of a merge call",
				"a merged value of nothing"))
		}
		parts := m.mc.LocalResults(m)
		all := make([]any, len(parts))
		for r, part := range parts {
			all[r] = part
		}
		return all
	})
}

// ValueContext identifies the replica for which a function of [Extended.ValuesFromFunction] creates
// a value. It corresponds to TensorFlow's tf.distribute.experimental.ValueContext.
type ValueContext struct{ ReplicaIDInSyncGroup, NumReplicasInSync int }

func (c ValueContext) String() string {
	return fmt.Sprintf("ValueContext(replica id %d, total replicas in sync: %d)", c.ReplicaIDInSyncGroup,
		c.NumReplicasInSync)
}

// ValuesFromFunction calls fn once for each replica of this process, in order, and combines the
// results like [Extended.Regroup]. It corresponds to TensorFlow's
// experimental_distribute_values_from_function. Every leaf becomes a distributed value, even if it
// is the same object on all replicas. All processes must make the call together. If fn returns an
// error in one process, the call returns an error in all processes. If fn panics, the call returns
// a [*errkind.PanicError].
func (e *Extended) ValuesFromFunction(ctx context.Context, fn func(ValueContext) (any, error)) (any, error) {
	s := e.strategy
	if err := engine.Internal(s).CheckEager(ctx, "values from function", fault.InsteadOfGiving); err != nil {
		return nil, err
	}
	ids := e.localReplicas()
	mine := make([]any, len(ids))
	var failed error
	for i, r := range ids {
		c := ValueContext{ReplicaIDInSyncGroup: r, NumReplicasInSync: s.NumReplicasInSync()}
		var err error
		if mine[i], err = errkind.CatchPanic("strategy: the function",
			func() (any, error) { return fn(c) }); err != nil {
			failed = fault.Wrap(fmt.Sprintf("values from function: replica %d", r), err, "")
			break
		}
	}
	nests, err := e.localNests(ctx, "values from function", mine, failed)
	if err != nil {
		return nil, err
	}
	return nesting.Zip("values from function", nests, func(path string, leaves []any) (any, error) {
		return e.combineLeaves(ctx, "values from function", path, leaves, false)
	})
}

// Group waits until all distributed values and variables of a nest are computed, like TensorFlow's
// group.
func (e *Extended) Group(ctx context.Context, nest any) error {
	s := e.strategy
	if err := strategy.RefuseTracing(ctx, "group", fault.InsteadOfWaiting); err != nil {
		return err
	}
	_, err := nesting.Map("group", nest, func(_ string, x any) (any, error) {
		if err := engine.Internal(s).CheckOwned("group", x); err != nil {
			return nil, err
		}
		switch x := x.(type) {
		case strategy.Value:
			return nil, x.Ready(ctx)
		case *strategy.Variable:
			return nil, x.Ready(ctx)
		case Component:
			return nil, x.source().Ready(ctx)
		}
		return nil, nil
	})
	return err
}
