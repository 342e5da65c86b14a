package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// untilReady returns ctx without cancellation, for waits of a few milliseconds. A cancelable wait
// would allocate.
func untilReady(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// increments returns a step x+1 of n donated variables with 8 floats each, and their store.
func increments(strat *strategy.TPUStrategy, n int) (*strategy.Function, *model.Store) {
	store := model.NewStore()
	return strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		for i := range n {
			x := rc.Scope().VariableWithValue(fmt.Sprint("x", i), tensors.FromScalarAndDimensions(float32(0), 8))
			x.SetNodeValue(graph.AddScalar(x.NodeValue(rc.Graph()), 1))
		}
		return nil
	}, strategy.FunctionOptions{Name: "add_one", Store: store}), store
}

// launches returns a launch of increments through a bound function, and a launch of the same
// program in a C loop with its own buffers.
func (r *rig) launches(ctx context.Context, strat *strategy.TPUStrategy, n int, args ...any) (ours, inC runner,
	err error) {
	f, store := increments(strat, n)
	bound, err := f.Bind(ctx, args...)
	if err != nil {
		return nil, nil, err
	}
	r.later(func() { _ = bound.Close() })
	x, _ := strat.Variables(store).Lookup(fmt.Sprintf("/x%d", n-1))
	short := untilReady(ctx)
	ours = timed(func() error { return bound.Launch(ctx) }, func() error { return x.Ready(short) })
	if len(args) > 0 {
		return ours, nil, nil
	}
	compiled, err := f.Compiled(ctx)
	if err != nil {
		return nil, nil, err
	}
	var state [][]*pjrt.Buffer
	for d, device := range compiled.Executable.AddressableDevices() {
		state = append(state, nil)
		for range n {
			b, err := strat.System().Client().BufferFromHost(ctx, make([]byte, 32), pjrt.F32, []int{8}, device)
			if err != nil {
				return nil, nil, err
			}
			r.later(func() { _ = b.Close() })
			state[d] = append(state[d], b)
		}
	}
	return ours, func(n int) (time.Duration, error) {
		took, err := compiled.Executable.MeasureLoop(ctx, state, n)
		return took.Total, err
	}, nil
}

// addOne measures a launch of x+1 on each device, where x is a donated variable.
func addOne(ctx context.Context, r *rig) (row, error) {
	strat, err := r.strategy(ctx, strategy.Options{})
	if err != nil {
		return row{}, err
	}
	ours, inC, err := r.launches(ctx, strat, 1)
	if err != nil {
		return row{}, err
	}
	return repeat{turns: 200, limit: time.Minute, ops: 20, blocks: 4}.time(ours, inC)
}

// launchVariables measures the processor time of a launch of x+1 of many donated variables. The
// baseline is a C loop that does not wait for the results.
func launchVariables(n int) func(ctx context.Context, r *rig) (row, error) {
	return func(ctx context.Context, r *rig) (row, error) {
		strat, err := r.strategy(ctx, strategy.Options{})
		if err != nil {
			return row{}, err
		}
		ours, inC, err := r.launches(ctx, strat, sized(n, 1))
		if err != nil {
			return row{}, err
		}
		return repeat{turns: 30, limit: time.Minute, ops: 20, byCPU: true}.time(ours, inC)
	}
}

// runSteps measures 100 steps of x+1 in one launch, a loop on the devices. The baseline is 100
// launches in C.
func runSteps(ctx context.Context, r *rig) (row, error) {
	const steps = 100
	strat, err := r.strategy(ctx, strategy.Options{})
	if err != nil {
		return row{}, err
	}
	_, inC, err := r.launches(ctx, strat, 1)
	if err != nil {
		return row{}, err
	}
	batches := make([]any, steps) // one batch per step; the function loops over them
	for i := range batches {
		batches[i] = tensors.FromScalarAndDimensions(float32(1), r.devices, 8)
	}
	stacked, err := strat.StackBatches(ctx, batches, logical.Annotation{})
	if err != nil {
		return row{}, err
	}
	ours, _, err := r.launches(ctx, strat, 1, stacked)
	if err != nil {
		return row{}, err
	}
	return repeat{turns: 1000, limit: 4 * time.Second, ops: 1, blocks: 4}.time(ours, func(n int) (time.Duration,
		error) {
		return inC(steps * n)
	})
}

// allReduce measures an all-reduce of 1 MiB per replica.
func allReduce(ctx context.Context, r *rig) (row, error) {
	strat, err := r.strategy(ctx, strategy.Options{})
	if err != nil {
		return row{}, err
	}
	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, in[0])}
	}, strategy.FunctionOptions{Name: "all_reduce"})
	bound, err := f.Bind(ctx, tensors.FromScalarAndDimensions(float32(1), 262144))
	if err != nil {
		return row{}, err
	}
	r.later(func() { _ = bound.Close() })
	return repeat{turns: 4000, limit: 2 * time.Second, ops: 1}.time(launched(ctx, bound), nil)
}

// launched returns the runner of a bound function with a result.
func launched(ctx context.Context, bound *strategy.Binding) runner {
	short := untilReady(ctx)
	return timed(func() error { return bound.Launch(ctx) }, func() error { return bound.Results()[0].Ready(short) })
}

// hostToDevice measures a copy of 16 MiB to each device. The baseline is a memcpy of the same size.
func hostToDevice(ctx context.Context, r *rig) (row, error) {
	strat, err := r.strategy(ctx, strategy.Options{})
	if err != nil {
		return row{}, err
	}
	big := tensors.FromShape(shapes.Make(dtypes.Float32, r.devices, 4<<20))
	src, dst := make([]byte, r.devices<<24), make([]byte, r.devices<<24)
	for i := range src { // all-zero pages would share one physical page
		src[i] = byte(i)
	}
	result, err := repeat{turns: 100, limit: 5 * time.Second, ops: 1}.time(timed(func() error {
		v, err := strat.SplitBatch(ctx, big, logical.Annotation{}, false)
		if err != nil {
			return err
		}
		return v.Close()
	}, nil), timed(func() error { copy(dst, src); return nil }, nil))
	result.GBps = round(float64(len(src)) / result.Us / 1e3)
	return result, err
}
