package strategy_test

import (
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// hostile has the objects for the hostile calls.
type hostile struct {
	ctx      context.Context
	s, other *strategy.TPUStrategy
	e        *eager.Extended
	mine     *strategy.Variable   // mirrored, summed
	onRead   *strategy.Variable   // summed on read
	foreign  *strategy.Variable   // of another strategy
	value    *strategy.PerReplica // [1 2]
	ragged   *strategy.PerReplica
	theirs   *strategy.PerReplica // of another strategy
	closed   *strategy.PerReplica
	steps    *strategy.StackedBatches
}

func (h *hostile) run(fn eager.ReplicaFunc, args ...any) error {
	_, err := h.e.CallForEachReplica(h.ctx, fn, args...)
	return err
}

func (h *hostile) step(f func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node, args ...any) error {
	_, err := h.s.Function(f, strategy.FunctionOptions{}).Run(h.ctx, args...)
	return err
}

// give passes an argument to a step.
func (h *hostile) give(arg any) error {
	return h.step(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in }, arg)
}

type hostileCase struct {
	name string
	kind errkind.Kind // KindUnknown: any error
	call func(h *hostile) error
}

// hints returns err if it is an ArgumentError with a hint.
func hints(err error, hint string) error {
	if bad := (*strategy.ArgumentError)(nil); !errors.As(err, &bad) || !strings.Contains(bad.Hint, hint) {
		return nil
	}
	return err
}

// panickedWith returns err if it reports a function that panicked with value.
func panickedWith(err, value error) error {
	if panicked := (*errkind.PanicError)(nil); !errors.As(err, &panicked) || panicked.Value != value ||
		!errors.Is(err, value) {
		return nil
	}
	return err
}

// loop contains itself.
func loop() []any {
	l := []any{nil}
	l[0] = l
	return l
}

var hostileCases = []hostileCase{
	{"reduce a value of another strategy", errkind.RuntimeError,
		func(h *hostile) error { return strategytest.Err(h.s.Reduce(h.ctx, strategy.Sum, h.theirs)) }},
	{"reduce a nil value", errkind.Unknown, func(h *hostile) error {
		return strategytest.Err(h.s.Reduce(h.ctx,
			strategy.Sum, nil))
	}},
	{"reduce a closed value", errkind.RuntimeError, func(h *hostile) error {
		return strategytest.Err(h.s.Reduce(h.ctx,
			strategy.Sum, h.closed))
	}},
	{"reduce by an unknown op", errkind.AssertionError, func(h *hostile) error {
		return strategytest.Err(h.s.Reduce(h.ctx,
			7, h.value))
	}},
	{"reduce along an axis that is not there", errkind.ValueError,
		func(h *hostile) error { return strategytest.Err(h.s.Reduce(h.ctx, strategy.Sum, h.value, 0)) }},
	{"reduce along one axis twice", errkind.InvalidArgumentError,
		func(h *hostile) error { return strategytest.Err(h.s.Reduce(h.ctx, strategy.Sum, h.ragged, 0, -1)) }},
	{"reduce along the smallest axis", errkind.ValueError, func(h *hostile) error {
		return strategytest.Err(h.s.Reduce(h.ctx, strategy.Sum, h.ragged, math.MinInt))
	}},
	{"reduce ragged batches element by element", errkind.InvalidArgumentError,
		func(h *hostile) error { return strategytest.Err(h.s.Reduce(h.ctx, strategy.Mean, h.ragged)) }},
	{"reduce text", errkind.TypeError, func(h *hostile) error {
		return strategytest.Err(eager.Of(h.s).Reduce(h.ctx,
			strategy.Mean, "text"))
	}},
	{"reduce objects", errkind.TypeError, func(h *hostile) error {
		return strategytest.Err(eager.Of(h.s).Reduce(h.ctx, strategy.Sum, strategy.NewObjects("a", "b")))
	}},
	{"reduce a nest that holds itself", errkind.ValueError,
		func(h *hostile) error { return strategytest.Err(eager.Of(h.s).Reduce(h.ctx, strategy.Sum, loop())) }},
	{"sum one number", errkind.ValueError, func(h *hostile) error {
		return strategytest.Err(eager.Of(h.s).Reduce(h.ctx,
			strategy.Sum, 3.0))
	}},
	{"gather scalars", errkind.InvalidArgumentError, func(h *hostile) error {
		return strategytest.Err(h.s.Gather(h.ctx,
			h.value, 0))
	}},
	{"gather along a far axis", errkind.InvalidArgumentError,
		func(h *hostile) error { return strategytest.Err(h.s.Gather(h.ctx, h.ragged, 1<<40)) }},
	{"give a step a ragged batch", errkind.ValueError, func(h *hostile) error {
		return h.step(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in }, h.ragged)
	}},
	{"give a step a value of another strategy", errkind.RuntimeError, func(h *hostile) error {
		return h.step(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in }, h.theirs)
	}},
	{"give a step a dictionary", errkind.ValueError, func(h *hostile) error {
		return hints(h.give(map[string]any{"x": h.value}), "nest.New")
	}},
	{"give a step a tuple", errkind.ValueError, func(h *hostile) error {
		return hints(h.give([]any{h.value, h.value}),
			"leaves one by one")
	}},
	{"give a step text", errkind.ValueError, func(h *hostile) error {
		return hints(h.give(strategy.NewObjects("a", "b")), "the dataset's Map")
	}},
	{"give a step nothing", errkind.ValueError, func(h *hostile) error { return hints(h.give(nil), "give a value") }},
	{"a step that panics", errkind.Unknown, func(h *hostile) error {
		return h.step(func(*strategy.ReplicaContext, []*graph.Node) []*graph.Node { panic("no") })
	}},
	{"a step that returns a nil node", errkind.Unknown, func(h *hostile) error {
		return h.step(func(*strategy.ReplicaContext, []*graph.Node) []*graph.Node { return []*graph.Node{nil} })
	}},
	{"a step that writes a foreign variable", errkind.RuntimeError, func(h *hostile) error {
		return h.step(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.Assign(h.foreign, float32(1))}
		})
	}},
	{"a step that reads no variable", errkind.TypeError, func(h *hostile) error {
		return h.step(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node { return []*graph.Node{rc.Read(nil)} })
	}},
	{"a step that writes another shape", errkind.ValueError, func(h *hostile) error {
		return h.step(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.Assign(h.mine, graph.Zeros(rc.Graph(), h.mineLike(3)))}
		})
	}},
	{"a step that writes one number for a sum", errkind.ValueError, func(h *hostile) error {
		return h.step(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.AssignAdd(h.mine, 1.0)}
		})
	}},
	{"a step that uses its context in a merge call", errkind.RuntimeError, func(h *hostile) error {
		return h.step(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			return eager.MergeCall(rc, func(_ *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
				rc.AllReduce(strategy.Sum, rc.ReplicaIDInSyncGroup())
				return args
			}, rc.ReplicaIDInSyncGroup())
		})
	}},
	{"a merge call that writes what differs", errkind.TypeError, func(h *hostile) error {
		return h.step(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			x := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), h.mine.Shape().DType)
			return eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
				mc.Assign(h.mine, args[0])
				return args
			}, x)
		})
	}},
	{"a step that runs a step", errkind.RuntimeError, func(h *hostile) error {
		return h.step(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			if _, err := h.s.Reduce(rc.Context(), strategy.Sum, h.value); err != nil {
				panic(err)
			}
			return in
		}, h.value)
	}},
	{"replicas that return other structures", errkind.AssertionError, func(h *hostile) error {
		return h.run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if rc.ReplicaIDInSyncGroup() == 0 {
				return []any{1}, nil
			}
			return map[string]any{"a": 1}, nil
		})
	}},
	{"a replica that returns a nest that holds itself", errkind.ValueError, func(h *hostile) error {
		return h.run(func(*eager.ReplicaContext, ...any) (any, error) { return loop(), nil })
	}},
	{"a replica that panics", errkind.Unknown, func(h *hostile) error {
		return h.run(func(*eager.ReplicaContext, ...any) (any, error) { panic(errors.New("no")) })
	}},
	{"a replica that ends its goroutine", errkind.Unknown, func(h *hostile) error {
		return h.run(func(*eager.ReplicaContext, ...any) (any, error) { runtime.Goexit(); return nil, nil })
	}},
	{"a replica that runs the replicas", errkind.RuntimeError, func(h *hostile) error {
		return h.run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return h.e.CallForEachReplica(rc.Context(), func(*eager.ReplicaContext, ...any) (any, error) { return nil, nil })
		})
	}},
	{"a replica that reduces text", errkind.TypeError, func(h *hostile) error {
		return h.run(func(rc *eager.ReplicaContext, _ ...any) (any, error) { return rc.AllReduce(strategy.Sum, "text") })
	}},
	{"replicas that reduce other shapes", errkind.InvalidArgumentError, func(h *hostile) error {
		return h.run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.AllReduce(strategy.Sum, make([]float32, rc.ReplicaIDInSyncGroup()+1))
		})
	}},
	{"replicas that reduce other dtypes", errkind.TypeError, func(h *hostile) error {
		return h.run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if rc.ReplicaIDInSyncGroup() == 0 {
				return rc.AllReduce(strategy.Sum, float32(1))
			}
			return rc.AllReduce(strategy.Sum, int32(2))
		})
	}},
	{"replicas that give a merge call other arguments", errkind.AssertionError, func(h *hostile) error {
		return h.run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.MergeCall(func(context.Context, ...any) (any, error) { return nil, nil },
				make([]any, rc.ReplicaIDInSyncGroup())...)
		})
	}},
	{"a replica context that is kept", errkind.RuntimeError, func(h *hostile) error {
		var kept *eager.ReplicaContext
		if err := h.run(func(rc *eager.ReplicaContext, _ ...any) (any, error) { kept = rc; return nil, nil }); err != nil {
			return err
		}
		return strategytest.Err(kept.AllReduce(strategy.Sum, float32(1)))
	}},
	{"an argument of another strategy", errkind.RuntimeError, func(h *hostile) error {
		return h.run(func(*eager.ReplicaContext, ...any) (any, error) { return nil, nil }, h.theirs)
	}},
	{"a write of a foreign variable", errkind.RuntimeError, func(h *hostile) error {
		return h.run(func(rc *eager.ReplicaContext, _ ...any) (any, error) { return rc.Assign(h.foreign, float32(1)) })
	}},
	{"a write of another dtype", errkind.ValueError, func(h *hostile) error { return h.mine.Assign(h.ctx, []int64{1}) }},
	{"a write of no tensor", errkind.TypeError, func(h *hostile) error {
		return h.mine.Assign(h.ctx,
			struct{ A int }{1})
	}},
	{"a per-replica write from outside", errkind.TypeError, func(h *hostile) error {
		return h.mine.Assign(h.ctx,
			h.value)
	}},
	{"an addition to what is summed on read", errkind.ValueError, func(h *hostile) error {
		return h.onRead.AssignAdd(h.ctx,
			1.0)
	}},
	{"a scatter of what is summed on read", errkind.ValueError, func(h *hostile) error {
		return h.onRead.Scatter(h.ctx,
			strategy.ScatterAdd, []int32{0}, []float32{1})
	}},
	{"a write in another strategy's scope", errkind.RuntimeError, func(h *hostile) error {
		scope, err := eager.Of(h.other).Scope(h.ctx)
		if err != nil {
			return err
		}
		return h.mine.Assign(scope, 1.0)
	}},
	{"an update of a foreign variable", errkind.RuntimeError, func(h *hostile) error {
		return strategytest.Err(h.e.Update(h.ctx, h.foreign, func(*eager.UpdateContext, ...any) (any, error) {
			return nil,
				nil
		}))
	}},
	{"an update whose components part", errkind.ValueError, func(h *hostile) error {
		return strategytest.Err(h.e.Update(h.ctx, h.mine, func(u *eager.UpdateContext, _ ...any) (any,
			error) {
			return u.Assign(float32(u.ReplicaID()))
		}))
	}},
	{"an update that panics", errkind.Unknown, func(h *hostile) error {
		return strategytest.Err(h.e.Update(h.ctx, h.mine, func(*eager.UpdateContext, ...any) (any, error) { panic("no") }))
	}},
	{"a reduction to nowhere", errkind.AssertionError, func(h *hostile) error {
		return strategytest.Err(h.e.ReduceTo(h.ctx, strategy.Sum, h.value, eager.Destination{}))
	}},
	{"a reduction to an unknown device", errkind.ValueError, func(h *hostile) error {
		return strategytest.Err(h.e.ReduceTo(h.ctx, strategy.Sum, h.value, eager.ToDevices("/device:TPU:99")))
	}},
	{"a logical device out of range", errkind.ValueError,
		func(h *hostile) error { return strategytest.Err(h.e.LogicalDevice(h.ctx, -1)) }},
	{"a variable with an annotation that does not fit", errkind.ValueError, func(h *hostile) error {
		return strategytest.Err(h.s.NewVariable(h.ctx, []float32{1, 2, 3},
			strategy.VariableOptions{Annotation: logical.SplitInto(2)}))
	}},
	{"a variable whose first value panics", errkind.Unknown, func(h *hostile) error {
		_, err := h.s.NewVariable(h.ctx, func() any { panic(io.ErrNoProgress) }, strategy.VariableOptions{})
		return panickedWith(err, io.ErrNoProgress)
	}},
	{"a variable of a replica whose first value panics", errkind.Unknown, func(h *hostile) error {
		return panickedWith(h.run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.NewVariable(func() any { panic(io.ErrNoProgress) }, strategy.VariableOptions{})
		}), io.ErrNoProgress)
	}},
	{"values of a function that panics", errkind.Unknown, func(h *hostile) error {
		_, err := eager.Of(h.s).ValuesFromFunction(h.ctx, func(c eager.ValueContext) (any, error) {
			if c.ReplicaIDInSyncGroup == 1 {
				panic(io.ErrNoProgress)
			}
			return float32(1), nil
		})
		return panickedWith(err, io.ErrNoProgress)
	}},
	{"gather several steps", errkind.TypeError, func(h *hostile) error {
		return strategytest.Err(h.s.Gather(h.ctx, h.steps,
			0))
	}},
	{"gather a nest of several steps", errkind.TypeError,
		func(h *hostile) error { return strategytest.Err(eager.Of(h.s).Gather(h.ctx, []any{h.steps}, 0)) }},
	{"reduce several steps", errkind.TypeError, func(h *hostile) error {
		return strategytest.Err(h.s.Reduce(h.ctx,
			strategy.Sum, h.steps))
	}},
	{"a variable of a channel", errkind.TypeError, func(h *hostile) error {
		return strategytest.Err(h.s.NewVariable(h.ctx, make(chan int), strategy.VariableOptions{}))
	}},
	{"too few values", errkind.ValueError, func(h *hostile) error {
		return strategytest.Err(h.s.PerReplica(h.ctx, []any{1.0}, logical.Annotation{}))
	}},
	{"values of other dtypes", errkind.TypeError, func(h *hostile) error {
		return strategytest.Err(h.s.PerReplica(h.ctx, []any{[]float32{1}, []int32{2}}, logical.Annotation{}))
	}},
	{"values of other ranks", errkind.InvalidArgumentError, func(h *hostile) error {
		return strategytest.Err(h.s.PerReplica(h.ctx, []any{[]float32{1}, float32(2)}, logical.Annotation{}))
	}},
	{"a cancelled run", errkind.Unknown, func(h *hostile) error {
		ctx, cancel := context.WithCancel(h.ctx)
		cancel()
		_, err := h.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.AllReduce(strategy.Sum, tensors.FromScalar(float32(1)))
		})
		if !errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}},
	{"a cancelled step", errkind.Unknown, func(h *hostile) error {
		ctx, cancel := context.WithCancel(h.ctx)
		cancel()
		_, err := h.s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
			strategy.FunctionOptions{}).Run(ctx, []float32{1})
		if !errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}},
}

func TestHostileCallsAreTypedErrors(t *testing.T) {
	for _, p := range []int{1, 2} {
		sys := plugintest.System(t, 2*p)
		ctx := context.Background()
		h := &hostile{ctx: ctx}
		var err error
		h.s, err = strategy.New(sys, strategy.Options{Compiler: plugintest.Programs(t), LogicalDevices: p})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.s.Close()) })
		h.other, err = strategy.New(sys, strategy.Options{Compiler: plugintest.Programs(t), LogicalDevices: p})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.other.Close()) })
		h.e = eager.Of(h.s)
		h.mine, err = h.s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		h.onRead, err = h.s.NewVariable(ctx, float32(1), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		h.foreign, err = h.other.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		pair := []any{float32(1), float32(2)}
		h.value, err = h.s.PerReplica(ctx, pair, logical.Annotation{})
		require.NoError(t, err)
		h.ragged, err = h.s.PerReplica(ctx, []any{[]float32{1, 2}, []float32{}}, logical.Annotation{})
		require.NoError(t, err)
		h.theirs, err = h.other.PerReplica(ctx, pair, logical.Annotation{})
		require.NoError(t, err)
		h.closed, err = h.s.PerReplica(ctx, pair, logical.Annotation{})
		require.NoError(t, err)
		require.NoError(t, h.closed.Close())
		h.steps, err = h.s.StackBatches(ctx, []any{[]float32{1, 2}, []float32{3, 4}}, logical.Annotation{})
		require.NoError(t, err)
		for _, c := range hostileCases {
			t.Run(c.name, func(t *testing.T) {
				err := c.call(h)
				require.Error(t, err)
				if c.kind != errkind.Unknown {
					require.Equal(t, c.kind, errkind.KindOf(err), "%T: %v", err, err)
				}
				// The strategy stays usable.
				sum, err := h.s.Reduce(ctx, strategy.Sum, h.value)
				require.NoError(t, err)
				got, err := sum.Float64(ctx)
				require.NoError(t, err)
				require.Equal(t, 3.0, got)
				require.Equal(t, []any{float32(1), float32(1)}, strategytest.Values(t, h.mine, 2), "the variable is as it was")
			})
		}
	}
}

// mineLike returns a shape with n elements of the variable's dtype.
func (h *hostile) mineLike(n int) shapes.Shape { return shapes.Make(dtypes.Float32, n) }
