package accept

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// functionCase is a strategy function with its arguments and its expected results.
type functionCase struct {
	name     string
	strategy strategy.Options
	options  strategy.FunctionOptions
	args     []any
	step     strategy.StepFunc
	// want returns the expected results of a replica, each as a flat []int32 or []float32.
	want func(replica int) []any
}

func (c functionCase) function(s *strategy.TPUStrategy) *strategy.Function {
	c.options.Name = "accept " + c.name
	return s.Function(c.step, c.options)
}

// maxQuickLogical is the maximum number of logical devices per replica in a quick run.
const maxQuickLogical = 2

// runCases runs test cases and checks their results. It continues after a failure.
func (w *partRun) runCases(ctx context.Context, all []functionCase) error {
	for _, c := range all {
		if w.session.opts.Quick && c.strategy.LogicalDevices > maxQuickLogical {
			continue
		}
		w.setActivity("%s", c.name)
		if err := w.runCase(ctx, c); err != nil {
			w.addFailure("%s: %v", c.name, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (w *partRun) runCase(ctx context.Context, c functionCase) (err error) {
	s, err := w.newStrategy(c.strategy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return w.runOnReplicas(ctx, s, c.function(s), c.args, func(r int, got []*tensors.Tensor) error {
		for i, want := range c.want(r) {
			if err := w.compareTensor(fmt.Sprintf("%s, result %d, replica %d", c.name, i, r), got[i], want); err != nil {
				return err
			}
		}
		return nil
	})
}

// runOnReplicas runs a function. It passes the results of each replica on this host to the
// callback.
func (w *partRun) runOnReplicas(ctx context.Context, s *strategy.TPUStrategy, f *strategy.Function, args []any,
	do func(replica int, results []*tensors.Tensor) error) (err error) {
	results, err := f.Run(ctx, args...)
	if err != nil {
		return err
	}
	defer func() {
		for _, r := range results {
			err = errors.Join(err, r.Close())
		}
	}()
	for _, replica := range s.LocalReplicas() {
		local := make([]*tensors.Tensor, len(results))
		for i, r := range results {
			if local[i], err = r.Local(ctx, replica); err != nil {
				return err
			}
		}
		if err := do(replica, local); err != nil {
			return err
		}
	}
	return nil
}

// compareTensor records a failure if a tensor differs from the expected flat value.
func (w *partRun) compareTensor(check string, got *tensors.Tensor, want any) error {
	return got.ConstBytes(func(data []byte) {
		switch want := want.(type) {
		case []int32:
			w.compareBytes(check, pjrt.S32, slices.Clone(data), pjrt.Bytes(want))
		case []float32:
			w.compareBytes(check, pjrt.F32, slices.Clone(data), pjrt.Bytes(want))
		}
	})
}

// countingInt32 returns an int32 tensor with the values 0, 1, ..., 60, 0, 1, ... in row-major order.
func countingInt32(dims ...int) *tensors.Tensor {
	return tensors.FromFlatDataAndDimensions(countingValues[int32](dims...), dims...)
}

func countingFloat32(dims ...int) *tensors.Tensor {
	return tensors.FromFlatDataAndDimensions(countingValues[float32](dims...), dims...)
}

// countingValues returns n values 0, 1, ..., 60, 0, 1, .... bfloat16 represents them exactly.
func countingValues[T int32 | float32](dims ...int) []T {
	all := make([]T, tensorType{dims: dims}.numElements())
	for i := range all {
		all[i] = T(i % 61)
	}
	return all
}

// meshOptions returns the options for a mesh of size[0] replicas with size[1] logical devices each.
// Four logical devices form a grid with two named axes.
func meshOptions(size [2]int) strategy.Options {
	o := strategy.Options{Replicas: size[0], LogicalDevices: size[1]}
	if size[1] == 4 {
		o.LogicalAxes = []sharding.Axis{{Name: "model", Size: 2}, {Name: "sequence", Size: 2}}
	}
	return o
}

// collectiveCases returns test cases for the strategy's collectives: over the replicas, and over
// the logical devices in code that shards its tensors manually.
func collectiveCases(n int) (all []functionCase) {
	for _, size := range meshSizes(n) {
		replicas, devices := size[0], size[1]
		const rows = 3
		of := func(r, j int) int32 { return int32((r*rows + j) % 61) }
		sum := func(f func(r int) int32) (total int32) {
			for r := range replicas {
				total += f(r)
			}
			return total
		}
		all = append(all, functionCase{
			name:     fmt.Sprintf("between replicas, %d x %d", replicas, devices),
			strategy: meshOptions(size), options: strategy.FunctionOptions{SplitBatch: true},
			args: []any{countingInt32(replicas * rows)},
			step: func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Int32)
				return []*graph.Node{rc.AllReduce(strategy.Sum, in[0]), rc.AllGather(in[0], 0), rc.Broadcast(in[0]),
					rc.AllReduce(strategy.Sum, graph.ConvertDType(in[0], dtypes.Float32)), graph.Add(in[0], id)}
			},
			want: func(r int) []any {
				var sums, first, own []int32
				var floats []float32
				for j := range rows {
					total := sum(func(r int) int32 { return of(r, j) })
					sums, floats = append(sums, total), append(floats, float32(total))
					first, own = append(first, of(0, j)), append(own, of(r, j)+int32(r))
				}
				return []any{sums, countingValues[int32](replicas * rows), first, floats, own}
			},
		})
		if devices > 1 {
			all = append(all, regionCase(size, nil, devices, "all logical devices"))
		}
		if devices == 4 { // collectives over one of two axes
			all = append(all, regionCase(size, []string{"sequence"}, 2, "one of two logical axes"))
		}
	}
	return all
}

// regionCase returns a test case that runs each collective over groups of g logical devices, in
// code that shards its tensors manually.
func regionCase(size [2]int, axes []string, g int, what string) functionCase {
	replicas, devices := size[0], size[1]
	names := axes
	if names == nil {
		names = []string{logical.LogicalAxis}
		if devices == 4 {
			names = []string{"model", "sequence"}
		}
	}
	cut := sharding.P(names)
	rows := 2 * g * g // rows per replica, 2g per device
	return functionCase{
		name:     fmt.Sprintf("between %s, %d x %d", what, replicas, devices),
		strategy: meshOptions(size), options: strategy.FunctionOptions{SplitBatch: true},
		args: []any{countingInt32(replicas * rows)},
		step: func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return manual.Region(names, []manual.Arg{manual.In(in[0], names)}, []sharding.Spec{sharding.P(), sharding.P(), cut,
				cut, cut, sharding.P()},
				func(in []*graph.Node) []*graph.Node {
					x := in[0]
					return []*graph.Node{manual.AllReduce(x, manual.Sum, names...), manual.AllGather(x, 0, names...),
						manual.ReduceScatter(x, 0, names...),
						manual.AllToAll(x, 0, 0, names...), manual.Shift(x, 1, names...), manual.Broadcast(x, g-1, names...)}
				})
		},
		want: func(r int) []any {
			x := func(d, j int) int { return (r*rows + d*2*g + j) % 61 }
			of := func(kind string, devices int) (all []int32) {
				for d := range devices {
					for _, v := range expectedCollective(kind, g, d, x) {
						all = append(all, int32(v))
					}
				}
				return all
			}
			return []any{of("all_reduce", 1), of("all_gather", 1), of("reduce_scatter", g), of("all_to_all", g),
				of("collective_permute", g), of("broadcast", 1)}
		},
	}
}
