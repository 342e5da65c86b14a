package accept

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

// unevenBatchCases returns test cases with batches that are not divisible by the number of
// replicas. Padding rows must not change the results.
func unevenBatchCases(n int) (all []functionCase) {
	for _, size := range meshSizes(n) {
		batch := 2*size[0] - 1
		if size[0] == 1 {
			continue // every batch is divisible by 1
		}
		total := float32(0)
		for i := range batch {
			total += float32(i % 61)
		}
		all = append(all, functionCase{
			name:     fmt.Sprintf("%d rows among %d replicas", batch, size[0]),
			strategy: meshOptions(size), options: strategy.FunctionOptions{SplitBatch: true, Padding: strategy.MaskPadding},
			args: []any{countingFloat32(batch)},
			step: func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				sum := rc.AllReduce(strategy.Sum, graph.ReduceAllSum(in[0]))
				return []*graph.Node{sum, rc.AllReduce(strategy.Sum, graph.ReduceAllSum(graph.OnesLike(in[0])))}
			},
			want: func(int) []any { return []any{[]float32{total}, []float32{float32(batch)}} },
		})
	}
	return all
}

// maskedFunction returns a function that sums and counts the rows of a padded batch, using its mask.
func maskedFunction(s *strategy.TPUStrategy, options strategy.FunctionOptions) *strategy.Function {
	options.Name = "accept masked batch"
	return s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		mask := graph.ConvertDType(in[1], dtypes.Float32)
		return []*graph.Node{rc.AllReduce(strategy.Sum, graph.ReduceAllSum(graph.Mul(in[0], mask))),
			rc.AllReduce(strategy.Sum, graph.ReduceAllSum(mask))}
	}, options)
}

// checkUnevenBatches tests batches that are not divisible by the number of replicas. It also tests
// that a function without padding rejects such a batch.
func checkUnevenBatches(ctx context.Context, w *partRun) (err error) {
	if w.system().NumProcesses() == 1 { // with several processes, only a feed knows the total number of rows
		if err := w.runCases(ctx, unevenBatchCases(w.numDevices())); err != nil {
			return err
		}
	}
	s, err := w.newStrategy(strategy.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := w.feedPadded(ctx, s); err != nil {
		return err
	}
	if w.numDevices() == 1 {
		return nil
	}
	w.setActivity("a batch that does not divide")
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
		strategy.FunctionOptions{Name: "accept uneven batch", SplitBatch: true})
	if _, err := f.Run(ctx, countingFloat32(w.numDevices()+1)); err == nil {
		w.addFailure("a batch of %d rows was not refused by %d replicas", w.numDevices()+1, w.numDevices())
	} else {
		w.addFact("uneven batch", "%v", err)
	}
	return nil
}

// feedPadded tests a dataset whose last batch is too short. The batch must be padded, and its mask
// must mark the rows of the dataset.
func (w *partRun) feedPadded(ctx context.Context, s *strategy.TPUStrategy) (err error) {
	w.setActivity("a dataset whose last batch is short")
	batch := 2 * s.NumReplicasInSync()
	all := countingValues[float32](2*batch + 1)
	x, err := input.NewTensor(all, len(all))
	if err != nil {
		return err
	}
	f, err := feed.FromDataset(ctx, s, input.FromSlices(input.Leaf(x)).Batch(batch, false),
		feed.Options{Partial: feed.Pad})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	masked := maskedFunction(s, strategy.FunctionOptions{})
	taken := 0
	for b, err := range f.All(ctx) {
		if err != nil {
			return err
		}
		part := all[min(taken*batch, len(all)):min((taken+1)*batch, len(all))]
		var total float32
		for _, v := range part {
			total += v
		}
		err = w.runOnReplicas(ctx, s, masked, b.Args(), func(r int, got []*tensors.Tensor) error {
			for i, want := range []float32{total, float32(len(part))} {
				if err := w.compareTensor(fmt.Sprintf("padded batch %d, result %d, replica %d", taken, i, r), got[i],
					[]float32{want}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		taken++
	}
	if taken != 3 {
		w.addFailure("%d batches of %d rows by %d, and 3 are right", taken, len(all), batch)
	}
	return nil
}
