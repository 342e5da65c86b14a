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

// call is a function of a strategy, with what each replica must get of it.
type call struct {
	name     string
	strategy strategy.Options
	options  strategy.FunctionOptions
	args     []any
	step     strategy.StepFunc
	// right is the flat value of each result on a replica: []int32 or []float32.
	right func(replica int) []any
}

func (c call) function(s *strategy.TPUStrategy) *strategy.Function {
	c.options.Name = "accept " + c.name
	return s.Function(c.step, c.options)
}

// quickLogical is the most logical devices of a replica in a quick run.
const quickLogical = 2

// calls runs functions and holds their results against the right ones. What fails is recorded, and
// the next one runs.
func (w *work) calls(ctx context.Context, all []call) error {
	for _, c := range all {
		if w.session.opts.Quick && c.strategy.LogicalDevices > quickLogical {
			continue
		}
		w.at("%s", c.name)
		if err := w.call(ctx, c); err != nil {
			w.fail("%s: %v", c.name, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (w *work) call(ctx context.Context, c call) (err error) {
	s, err := w.strategy(c.strategy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return w.each(ctx, s, c.function(s), c.args, func(r int, got []*tensors.Tensor) error {
		for i, want := range c.right(r) {
			if err := w.same(fmt.Sprintf("%s, result %d, replica %d", c.name, i, r), got[i], want); err != nil {
				return err
			}
		}
		return nil
	})
}

// each runs a function, and calls do with its results on each replica of this host.
func (w *work) each(ctx context.Context, s *strategy.TPUStrategy, f *strategy.Function, args []any, do func(replica int, results []*tensors.Tensor) error) (err error) {
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

// same holds a tensor against a flat value.
func (w *work) same(check string, got *tensors.Tensor, want any) error {
	return got.ConstBytes(func(data []byte) {
		switch want := want.(type) {
		case []int32:
			w.exactly(check, pjrt.S32, slices.Clone(data), pjrt.Bytes(want))
		case []float32:
			w.exactly(check, pjrt.F32, slices.Clone(data), pjrt.Bytes(want))
		}
	})
}

// counted returns an int32 tensor whose elements are their row-major indices modulo 61. counted32
// returns the same values as float32.
func counted(dims ...int) *tensors.Tensor {
	return tensors.FromFlatDataAndDimensions(count[int32](dims...), dims...)
}

func counted32(dims ...int) *tensors.Tensor {
	return tensors.FromFlatDataAndDimensions(count[float32](dims...), dims...)
}

// count is 0, 1, ... modulo 61, so that bfloat16 would hold the numbers, too.
func count[T int32 | float32](dims ...int) []T {
	all := make([]T, tensorType{dims: dims}.elements())
	for i := range all {
		all[i] = T(i % 61)
	}
	return all
}

// meshOf are the options of R replicas of P logical devices, whose names are as a user would give
// them: four are a grid.
func meshOf(size [2]int) strategy.Options {
	o := strategy.Options{Replicas: size[0], LogicalDevices: size[1]}
	if size[1] == 4 {
		o.LogicalAxes = []sharding.Axis{{Name: "model", Size: 2}, {Name: "sequence", Size: 2}}
	}
	return o
}

// collectiveCalls are the strategy's own collectives: between replicas, and, in manual regions,
// between the logical devices of a replica.
func collectiveCalls(n int) (all []call) {
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
		all = append(all, call{
			name:     fmt.Sprintf("between replicas, %d x %d", replicas, devices),
			strategy: meshOf(size), options: strategy.FunctionOptions{SplitBatch: true},
			args: []any{counted(replicas * rows)},
			step: func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Int32)
				return []*graph.Node{rc.AllReduce(strategy.Sum, in[0]), rc.AllGather(in[0], 0), rc.Broadcast(in[0]),
					rc.AllReduce(strategy.Sum, graph.ConvertDType(in[0], dtypes.Float32)), graph.Add(in[0], id)}
			},
			right: func(r int) []any {
				var sums, first, own []int32
				var floats []float32
				for j := range rows {
					total := sum(func(r int) int32 { return of(r, j) })
					sums, floats = append(sums, total), append(floats, float32(total))
					first, own = append(first, of(0, j)), append(own, of(r, j)+int32(r))
				}
				return []any{sums, count[int32](replicas * rows), first, floats, own}
			},
		})
		if devices > 1 {
			all = append(all, regionCall(size, nil, devices, "all logical devices"))
		}
		if devices == 4 { // over one axis of two
			all = append(all, regionCall(size, []string{"sequence"}, 2, "one of two logical axes"))
		}
	}
	return all
}

// regionCall runs each collective of a manual region over some axes of g devices.
func regionCall(size [2]int, axes []string, g int, what string) call {
	replicas, devices := size[0], size[1]
	names := axes
	if names == nil {
		names = []string{logical.LogicalAxis}
		if devices == 4 {
			names = []string{"model", "sequence"}
		}
	}
	cut := sharding.P(names)
	rows := 2 * g * g // of a replica: 2g on each device
	return call{
		name:     fmt.Sprintf("between %s, %d x %d", what, replicas, devices),
		strategy: meshOf(size), options: strategy.FunctionOptions{SplitBatch: true},
		args: []any{counted(replicas * rows)},
		step: func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return manual.Region(names, []manual.Arg{manual.In(in[0], names)}, []sharding.Spec{sharding.P(), sharding.P(), cut, cut, cut, sharding.P()},
				func(in []*graph.Node) []*graph.Node {
					x := in[0]
					return []*graph.Node{manual.AllReduce(x, manual.Sum, names...), manual.AllGather(x, 0, names...), manual.ReduceScatter(x, 0, names...),
						manual.AllToAll(x, 0, 0, names...), manual.Shift(x, 1, names...), manual.Broadcast(x, g-1, names...)}
				})
		},
		right: func(r int) []any {
			x := func(d, j int) int { return (r*rows + d*2*g + j) % 61 }
			of := func(kind string, devices int) (all []int32) {
				for d := range devices {
					for _, v := range rightCollective(kind, g, d, x) {
						all = append(all, int32(v))
					}
				}
				return all
			}
			return []any{of("all_reduce", 1), of("all_gather", 1), of("reduce_scatter", g), of("all_to_all", g), of("collective_permute", g), of("broadcast", 1)}
		},
	}
}
