package main

import (
	"context"
	"runtime"
	"slices"
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

// addOne is the cost of a launch: x+1 on each device, x a donated variable. The floor is the same
// program in a loop in C.
func addOne(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	short := untilReady(ctx)
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
	state, release, err := stateOf(ctx, strat, compiled.Executable, 1, 1, 8)
	if err != nil {
		return row{}, err
	}
	defer release()
	const steps = 20
	inC := func() (time.Duration, error) {
		took, err := compiled.Executable.Repeat(ctx, state, steps)
		return took.Done / steps, err
	}
	inGo := func() (time.Duration, error) {
		start := time.Now()
		for range steps {
			if err := bound.Launch(ctx); err != nil {
				return 0, err
			}
		}
		err := x.Ready(short)
		return time.Since(start) / steps, err
	}
	return inTurn(inGo, inC, steps)
}

// inTurn times blocks of n operations, ours and the floor's in turn: in each turn four of a kind,
// of which the first brings its code back into the caches. The ratio is the median over the turns,
// as the machine's clock may change between them.
func inTurn(ours, floor func() (time.Duration, error), n int) (r row, err error) {
	block := func(f func() (time.Duration, error)) (time.Duration, error) {
		if _, err := f(); err != nil {
			return 0, err
		}
		var times [3]time.Duration
		for i := range times {
			if times[i], err = f(); err != nil {
				return 0, err
			}
		}
		slices.Sort(times[:])
		return times[1], nil
	}
	var all [2][]time.Duration
	var ratios []float64
	for turn := range rounds(200) {
		var took [2]time.Duration
		for i := range 2 {
			which := (turn + i) % 2
			if took[which], err = block([]func() (time.Duration, error){ours, floor}[which]); err != nil {
				return row{}, err
			}
			all[which] = append(all[which], took[which])
		}
		ratios = append(ratios, float64(took[0])/float64(took[1]))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := ours(); err != nil {
		return row{}, err
	}
	runtime.ReadMemStats(&after)
	slices.Sort(ratios)
	return row{Us: round(median(all[0])), FloorUs: round(median(all[1])), Ratio: round(ratios[len(ratios)/2]),
		Allocs: round(float64(after.Mallocs-before.Mallocs) / float64(n))}, nil
}

// runSteps is 100 steps of x+1 in one launch, a loop on the devices. The floor is the C loop's time
// for 100 launches.
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
	short := untilReady(ctx)
	const steps = 100
	store := model.NewStore()
	f := strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		x := rc.Scope().VariableWithValue("x", tensors.FromScalarAndDimensions(float32(0), 1, 8))
		x.SetNodeValue(graph.AddScalar(x.NodeValue(rc.Graph()), 1))
		return nil
	}, strategy.FunctionOptions{Name: "add_many", Store: store})
	one := make([]any, steps) // a batch for each step makes the loop
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
	m, err := measure(2*time.Second, 1, func() error { return bound.Launch(ctx) }, func() error { return x.Ready(short) })
	return row{Us: m.us, Allocs: m.allocs, FloorUs: round(steps * single.FloorUs),
		Note: "100 single launches from Go take " + time.Duration(steps*single.Us*1e3).Round(time.Microsecond).String()}, err
}

// executeReturn is how long a launch keeps its caller while a long program runs. The floor is how
// long the same launch keeps C.
func executeReturn(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	short := untilReady(ctx)
	store := model.NewStore()
	f := strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		x := rc.Scope().VariableWithValue("x", tensors.FromScalarAndDimensions(float32(0.001), 512, 512))
		y := x.NodeValue(rc.Graph())
		for range 8 {
			y = graph.MatMul(y, x.NodeValue(rc.Graph()))
		}
		x.SetNodeValue(y)
		return nil
	}, strategy.FunctionOptions{Name: "long", Store: store})
	bound, err := f.Bind(ctx)
	if err != nil {
		return row{}, err
	}
	defer bound.Close()
	compiled, err := f.Compiled(ctx)
	if err != nil {
		return row{}, err
	}
	state, release, err := stateOf(ctx, strat, compiled.Executable, 1, 512, 512)
	if err != nil {
		return row{}, err
	}
	defer release()
	x, _ := strat.Variables(store).Lookup("/x")
	var calls, whole, floor []time.Duration
	for range rounds(200 / devices) { // with few devices a return takes either of two ways
		took, err := compiled.Executable.Repeat(ctx, state, 1)
		if err != nil {
			return row{}, err
		}
		floor = append(floor, took.Launched)
		start := time.Now()
		if err := bound.Launch(ctx); err != nil {
			return row{}, err
		}
		calls = append(calls, time.Since(start))
		if err := x.Ready(short); err != nil {
			return row{}, err
		}
		whole = append(whole, time.Since(start))
	}
	return row{Us: round(median(calls)), FloorUs: round(median(floor)),
		Note: "the program takes " + time.Duration(median(whole)*1e3).Round(time.Millisecond).String()}, nil
}

// stateOf makes a zeroed state for a C loop, of n float32 buffers on each of an executable's devices.
func stateOf(ctx context.Context, strat *strategy.TPUStrategy, x *pjrt.LoadedExecutable, n int, dims ...int) ([][]*pjrt.Buffer, func(), error) {
	var state [][]*pjrt.Buffer
	release := func() {
		for _, row := range state {
			for _, b := range row {
				_ = b.Close()
			}
		}
	}
	zeros := make([]byte, shapes.Make(dtypes.Float32, dims...).Size()*4)
	for d, device := range x.AddressableDevices() {
		state = append(state, nil)
		for range n {
			b, err := strat.System().Client().BufferFromHost(ctx, zeros, pjrt.F32, dims, device)
			if err != nil {
				release()
				return nil, nil, err
			}
			state[d] = append(state[d], b)
		}
	}
	return state, release, nil
}

// allReduce is an all-reduce of 1 MiB for each replica.
func allReduce(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	short := untilReady(ctx)
	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, in[0])}
	}, strategy.FunctionOptions{Name: "all_reduce"})
	bound, err := f.Bind(ctx, tensors.FromScalarAndDimensions(float32(1), 262144))
	if err != nil {
		return row{}, err
	}
	defer bound.Close()
	m, err := measure(2*time.Second, 1, func() error { return bound.Launch(ctx) }, func() error { return bound.Results()[0].Ready(short) })
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
		v, err := strat.SplitBatch(ctx, big, logical.Annotation{}, false)
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
