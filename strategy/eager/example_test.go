package eager_test

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

// The function returns a constant for each replica, the replica's row of an array, or the number of
// replicas.
func ExampleExtended_ValuesFromFunction() {
	ctx := context.Background()
	strat, done := strategytest.Example(3, 1)
	defer done()

	array := []float32{3, 2, 1}
	for _, fn := range []func(eager.ValueContext) (any, error){
		func(eager.ValueContext) (any, error) { return float32(1), nil },
		func(c eager.ValueContext) (any, error) { return array[c.ReplicaIDInSyncGroup], nil },
		func(c eager.ValueContext) (any, error) { return c.NumReplicasInSync, nil },
	} {
		fmt.Println(strategytest.Locals(strat, strategytest.OK(eager.Of(strat).ValuesFromFunction(ctx, fn))))
	}
	// Output:
	// [1 1 1]
	// [3 2 1]
	// [3 3 3]
}

// Host arrays become a dataset, which is then batched and distributed.
func ExampleExtended_MakeNumpyDataset() {
	ctx := context.Background()
	strat, done := strategytest.Example(2, 1)
	defer done()

	ds := strategytest.OK(eager.Of(strat).MakeNumpyDataset([]float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}))
	iterator := strategytest.OK(feed.Iterate(ctx, strat, strategytest.OK(input.Distribute(ds.Batch(2, false),
		strategytest.OK(feed.InputOptions(strat))))))
	defer iterator.Close()
	fmt.Println(ds.Info().Spec, strategytest.Locals(strat, strategytest.OK(iterator.Next(ctx))))
	// Output: float32[] [[1] [1]]
}

// Each replica adds its id to three, and a merge call computes the sum over the replicas.
func ExampleExtended_CallForEachReplica() {
	ctx := context.Background()
	strat, done := strategytest.Example(4, 1)
	defer done()

	// Called once, in cross-replica context.
	mergeFn := func(ctx context.Context, args ...any) (any, error) {
		return eager.Of(strat).Reduce(ctx, strategy.Sum, args[0])
	}
	// Called once for each replica.
	fn := func(rc *eager.ReplicaContext, args ...any) (any, error) {
		v, err := rc.Add(args[0], int32(rc.ReplicaIDInSyncGroup()))
		if err != nil {
			return nil, err
		}
		sum, err := rc.MergeCall(mergeFn, v)
		if err != nil {
			return nil, err
		}
		return rc.Add(sum, v)
	}
	fmt.Println(strategytest.Locals(strat, strategytest.OK(eager.Of(strat).CallForEachReplica(ctx, fn, int32(3)))))
	// Output: [21 22 23 24]
}

// An update assigns each component of a variable. The results are combined into one value.
func ExampleExtended_Update() {
	ctx := context.Background()
	strat, done := strategytest.Example(2, 1)
	defer done()

	v := strategytest.OK(strat.NewVariable(ctx, float32(5), strategy.VariableOptions{Aggregation: strategy.AggregateSum}))
	result := strategytest.OK(eager.Of(strat).Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) {
		return u.Assign(float32(1))
	}))
	fmt.Printf("%T %v\n", result, strategytest.Locals(strat, result))
	// Output: *strategy.Mirrored [1 1]
}

// The standard pattern for updating variables: merge the gradients of the replicas, reduce them to
// the variable, and update each of its components.
func ExampleExtended_BatchReduceTo() {
	ctx := context.Background()
	strat, done := strategytest.Example(4, 1)
	defer done()
	e := eager.Of(strat)

	w := strategytest.OK(strat.NewVariable(ctx, float32(5), strategy.VariableOptions{Name: "w"}))
	strategytest.OK(e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		gradient := float32(rc.ReplicaIDInSyncGroup())
		return rc.MergeCall(func(ctx context.Context, gradients ...any) (any, error) {
			sums, err := e.BatchReduceTo(ctx, strategy.Sum, []eager.ReducePair{{Value: gradients[0], To: eager.To(w)}})
			if err != nil {
				return nil, err
			}
			return e.Update(ctx, w, func(u *eager.UpdateContext, args ...any) (any, error) {
				return u.AssignSub(args[0])
			}, sums[0])
		}, gradient)
	}))
	fmt.Println(strategytest.Locals(strat, w))
	// Output: [-1 -1 -1 -1]
}

// Slots are created on the devices of their variable, here on the second logical device.
func ExampleExtended_ColocateVarsWith() {
	ctx := context.Background()
	strat, done := strategytest.Example(2, 2)
	defer done()
	e := eager.Of(strat)

	scope := strategytest.OK(eager.Of(strat).Scope(ctx))
	v1 := strategytest.OK(strat.NewVariable(strategytest.OK(e.LogicalDevice(scope, 1)), float32(1),
		strategy.VariableOptions{Name: "var1"}))
	with := strategytest.OK(e.ColocateVarsWith(scope, v1))
	v2 := strategytest.OK(strat.NewVariable(with, float32(2), strategy.VariableOptions{Name: "var2"}))
	v3 := strategytest.OK(strat.NewVariable(with, float32(3), strategy.VariableOptions{Name: "var3"}))
	fmt.Println(v1.Devices())
	fmt.Println(v2.Devices())
	strategytest.OK(e.Update(ctx, v1, func(u *eager.UpdateContext, args ...any) (any, error) {
		sum, err := u.Ops().Add(args[0], args[1])
		if err != nil {
			return nil, err
		}
		return u.Assign(sum)
	}, strategytest.OK(e.ReadVar(ctx, v2)), strategytest.OK(e.ReadVar(ctx, v3))))
	fmt.Println(strategytest.Locals(strat, v1))
	// Output:
	// [/job:localhost/replica:0/task:0/device:CPU:1 /job:localhost/replica:0/task:0/device:CPU:3]
	// [/job:localhost/replica:0/task:0/device:CPU:1 /job:localhost/replica:0/task:0/device:CPU:3]
	// [5 5]
}

// State that belongs to no variable, such as a step count, is stored on the first host.
func ExampleExtended_UpdateNonSlot() {
	ctx := context.Background()
	strat, done := strategytest.Example(2, 1)
	defer done()
	e := eager.Of(strat)

	steps := 41
	result := strategytest.OK(e.UpdateNonSlot(ctx, e.NonSlotDevices(), func(_ *eager.UpdateContext, args ...any) (any,
		error) {
		steps += args[0].(int)
		return steps, nil
	}, 1))
	fmt.Println(result)
	// Output: 42
}

// Three steps run on an iterator. The outputs are from the last step.
func ExampleExtended_RunStepsOnIterator() {
	ctx := context.Background()
	strat, done := strategytest.Example(2, 1)
	defer done()

	iterator := strategytest.OK(feed.Iterate(ctx, strat, strategytest.OK(input.Distribute(input.Range(12).Batch(2, true),
		strategytest.OK(feed.InputOptions(strat))))))
	defer iterator.Close()
	m := strategytest.OK(eager.Of(strat).RunStepsOnIterator(ctx, func(ctx context.Context, m *eager.MultiStepContext,
		inputs any) error {
		if err := m.SetLastStepOutput(ctx, "inputs", inputs); err != nil {
			return err
		}
		return m.SetLastStepOutput(ctx, "sum", inputs, strategy.Sum)
	}, iterator, 3, nil))
	fmt.Println(strategytest.Locals(strat, m.LastStepOutputs()["inputs"]),
		strategytest.Shared(m.LastStepOutputs()["sum"].(*strategy.Mirrored)))
	// Output: [[4] [5]] [9]
}

// Inside the scope there is a current strategy. A variable has a component on each replica, and its
// strategy is known outside the scope as well.
func ExampleExtended_Scope() {
	ctx := context.Background()
	strat, done := strategytest.Example(2, 1)
	defer done()

	scope := strategytest.OK(eager.Of(strat).Scope(ctx))
	current, has := eager.FromContext(scope)
	_, outside := eager.FromContext(ctx)
	fmt.Println(current == strat, has, eager.InCrossReplicaContext(scope), outside)

	v := strategytest.OK(strat.NewVariable(scope, float32(1), strategy.VariableOptions{}))
	fmt.Println(strategytest.Locals(strat, v), eager.Of(strat).VariableCreatedInScope(v),
		eager.Of(strat).VariableCreatedInScope(nil))
	// Output:
	// true true true false
	// [1 1] true false
}

// A merge call in a compiled step becomes one all-reduce.
func ExampleMergeCall() {
	ctx := context.Background()
	strat, done := strategytest.Example(4, 1)
	defer done()

	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		v := graph.Add(in[0], rc.ReplicaIDInSyncGroup())
		sum := eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
			return []*eager.MergeValue{mc.Reduce(strategy.Sum, args[0])}
		}, v)
		return []*graph.Node{graph.Add(sum[0], v)}
	}, strategy.FunctionOptions{Name: "three_plus_id"})
	fmt.Println(strategytest.Locals(strat, strategytest.OK(f.Run(ctx, int32(3)))[0]))
	// Output: [21 22 23 24]
}
