package main

import (
	"context"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"tpustrategy/logical"
	"tpustrategy/pjrt"
	"tpustrategy/strategy"
)

// addOne is the cost of a launch: x+1 on each device, x a donated variable. The
// floor is the same program in a loop in C.
func addOne(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	store := model.NewStore()
	f := strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		x := rc.Scope().VariableWithValue("x", tensors.FromScalarAndDimensions(float32(0), 1, 8))
		x.SetNodeValue(graph.AddScalar(x.NodeValue(rc.Graph()), 1))
		return nil
	}, strategy.FunctionOptions{Name: "add_one", Store: store})
	bound, err := f.Bind(ctx)
	if err != nil {
		return row{}, err
	}
	defer bound.Close()
	x, _ := strat.Variables(store).Lookup("/x")
	compiled, err := f.Compiled(ctx)
	if err != nil {
		return row{}, err
	}
	// The C loop has a state of its own, on the same devices.
	client := strat.System().Client()
	var state [][]*pjrt.Buffer
	for _, device := range compiled.Executable.AddressableDevices() {
		b, err := client.BufferFromHost(ctx, make([]byte, 32), pjrt.F32, []int{1, 8}, device)
		if err != nil {
			return row{}, err
		}
		defer b.Close()
		state = append(state, []*pjrt.Buffer{b})
	}
	const steps = 20
	launch := func() error { return bound.Launch(ctx) }
	wait := func() error { return x.Ready(ctx) }
	var ours, floor []time.Duration
	var allocs float64
	for range 60 {
		took, err := compiled.Executable.Repeat(ctx, state, steps)
		if err != nil {
			return row{}, err
		}
		floor = append(floor, took/steps)
		m, err := measure(0, steps, launch, wait)
		if err != nil {
			return row{}, err
		}
		ours, allocs = append(ours, time.Duration(m.us*1e3)), m.allocs
	}
	return row{Us: round(median(ours)), Allocs: allocs, FloorUs: round(median(floor))}, nil
}

// runSteps is 100 steps of x+1 in one launch, a loop on the devices. The floor is
// the C loop's time for 100 launches.
func runSteps(ctx context.Context, devices int) (row, error) {
	single, err := addOne(ctx, devices)
	if err != nil {
		return row{}, err
	}
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	const steps = 100
	store := model.NewStore()
	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x := rc.Scope().VariableWithValue("x", tensors.FromScalarAndDimensions(float32(0), 1, 8))
		x.SetNodeValue(graph.Add(x.NodeValue(rc.Graph()), in[0]))
		return nil
	}, strategy.FunctionOptions{Name: "add_many", Store: store})
	one := make([]any, steps)
	for i := range one {
		one[i] = tensors.FromScalarAndDimensions(float32(1), devices, 8)
	}
	ones, err := strat.StackBatches(ctx, one, logical.Annotation{})
	if err != nil {
		return row{}, err
	}
	bound, err := f.Bind(ctx, ones)
	if err != nil {
		return row{}, err
	}
	defer bound.Close()
	x, _ := strat.Variables(store).Lookup("/x")
	m, err := measure(2*time.Second, 1, func() error { return bound.Launch(ctx) }, func() error { return x.Ready(ctx) })
	return row{Us: m.us, Allocs: m.allocs, FloorUs: round(steps * single.FloorUs),
		Note: "100 single launches from Go take " + time.Duration(steps*single.Us*1e3).Round(time.Microsecond).String()}, err
}

// executeReturn is how long a launch keeps its caller while a long program (of
// tens of milliseconds) runs. The floor is the C loop's time of x+1.
func executeReturn(ctx context.Context, devices int) (row, error) {
	floor, err := addOne(ctx, devices)
	if err != nil {
		return row{}, err
	}
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	f := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		y := in[0]
		for range 8 {
			y = graph.MatMul(y, in[0])
		}
		return []*graph.Node{y}
	}, strategy.FunctionOptions{Name: "long"})
	bound, err := f.Bind(ctx, tensors.FromScalarAndDimensions(float32(0.001), 512, 512))
	if err != nil {
		return row{}, err
	}
	defer bound.Close()
	var calls, whole []time.Duration
	for range 30 {
		start := time.Now()
		if err := bound.Launch(ctx); err != nil {
			return row{}, err
		}
		calls = append(calls, time.Since(start))
		if err := bound.Results()[0].Ready(ctx); err != nil {
			return row{}, err
		}
		whole = append(whole, time.Since(start))
	}
	return row{Us: round(median(calls)), FloorUs: floor.FloorUs,
		Note: "the program takes " + time.Duration(median(whole)*1e3).Round(time.Millisecond).String()}, nil
}

// allReduce is an all-reduce of 1 MiB for each replica.
func allReduce(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, in[0])}
	}, strategy.FunctionOptions{Name: "all_reduce"})
	bound, err := f.Bind(ctx, tensors.FromScalarAndDimensions(float32(1), 262144))
	if err != nil {
		return row{}, err
	}
	defer bound.Close()
	m, err := measure(2*time.Second, 1, func() error { return bound.Launch(ctx) }, func() error { return bound.Results()[0].Ready(ctx) })
	return row{Us: m.us, Allocs: m.allocs}, err
}

// hostToDevice copies 16 MiB to each device; the floor is a memcpy of as much.
func hostToDevice(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	const elements = 4 << 20
	shape := shapes.Make(dtypes.Float32, devices, elements)
	big := tensors.FromShape(shape)
	bytes := float64(shape.Size() * 4)
	m, err := measure(3*time.Second, 1, func() error {
		v, err := strat.SplitBatch(ctx, big, logical.Annotation{})
		if err != nil {
			return err
		}
		return v.Close()
	}, func() error { return nil })
	if err != nil {
		return row{}, err
	}
	src, dst := make([]byte, int(bytes)), make([]byte, int(bytes))
	for i := range src { // pages that are all zero would be one page
		src[i] = byte(i)
	}
	floor, err := measure(2*time.Second, 1, func() error { copy(dst, src); return nil }, func() error { return nil })
	return row{Us: m.us, Allocs: m.allocs, FloorUs: floor.us, GBps: round(bytes / m.us / 1e3)}, err
}
