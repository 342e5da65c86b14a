package accept

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// placementCase is a test of one sharding of a matrix over the logical devices of a replica.
type placementCase struct {
	name       string
	annotation logical.Annotation
	// shardShape is the expected shape of each device's shard.
	shardShape [2]int
}

// rows and columns are the dimensions of the test matrix. Both are multiples of 4.
const rows, columns = 8, 12

func placementCases(devices int) []placementCase {
	forms := []placementCase{
		{"replicated", logical.Replicated(), [2]int{rows, columns}},
		{"assigned to the first", logical.AssignTo(0), [2]int{rows, columns}},
		{"assigned to the last", logical.AssignTo(devices - 1), [2]int{rows, columns}},
		{"rows split", logical.SplitInto(devices, 1), [2]int{rows / devices, columns}},
		{"columns split", logical.SplitInto(1, devices), [2]int{rows, columns / devices}},
	}
	if devices == 4 {
		forms = append(forms,
			placementCase{"rows and columns split", logical.SplitInto(2, 2), [2]int{rows / 2, columns / 2}},
			placementCase{"one axis over rows", logical.SplitOverAxes("model", ""), [2]int{rows / 2, columns}},
			placementCase{"two axes over columns", logical.SplitOverAxes("", "model,sequence"), [2]int{rows, columns / 4}},
			placementCase{"axes crossed", logical.SplitOverAxes("sequence", "model"), [2]int{rows / 2, columns / 2}})
	}
	return forms
}

// splitCases returns test cases that shard an argument, an intermediate tensor and a result of a
// function with each of the shardings.
func splitCases(n int) (all []functionCase) {
	for _, size := range meshSizes(n) {
		if size[1] == 1 {
			continue
		}
		for _, f := range placementCases(size[1]) {
			all = append(all, functionCase{
				name:     fmt.Sprintf("%s, %d x %d", f.name, size[0], size[1]),
				strategy: meshOptions(size),
				options:  strategy.FunctionOptions{Arguments: []logical.Annotation{f.annotation}},
				args:     []any{countingFloat32(rows, columns)},
				step: func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
					y := logical.Apply(graph.AddScalar(in[0], 1), f.annotation)
					return []*graph.Node{y, rc.AllReduce(strategy.Sum, graph.ReduceSum(y, 0)), graph.ReduceSum(y, 1)}
				},
				want: func(int) []any {
					y := countingValues[float32](rows, columns)
					down, across := make([]float32, columns), make([]float32, rows)
					for i := range y {
						y[i]++
						down[i%columns] += y[i] * float32(size[0])
						across[i/columns] += y[i]
					}
					return []any{y, down, across}
				},
			})
		}
	}
	return all
}

// checkSplits runs splitCases and checks the shards of variables. It also checks that a strategy
// rejects a dimension that is not divisible by the number of shards.
func checkSplits(ctx context.Context, w *partRun) error {
	all := splitCases(w.numDevices())
	if len(all) == 0 {
		w.addFact("splits", "%d devices cannot be logical devices of a replica, so there is nothing to split", w.numDevices())
		return nil
	}
	if err := w.runCases(ctx, all); err != nil {
		return err
	}
	for _, size := range meshSizes(w.numDevices()) {
		if size[1] == 1 || w.session.opts.Quick && size[1] > maxQuickLogical {
			continue
		}
		w.setActivity("variables, %d x %d", size[0], size[1])
		if err := w.checkSplitVariables(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

// checkSplitVariables creates a variable with each sharding, and checks its value and its shards.
func (w *partRun) checkSplitVariables(ctx context.Context, size [2]int) (err error) {
	s, err := w.newStrategy(meshOptions(size))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for i, f := range placementCases(size[1]) {
		v, err := s.NewVariable(ctx, countingFloat32(rows, columns), strategy.VariableOptions{Name: fmt.Sprintf("v%d", i),
			Annotation: f.annotation})
		if err != nil {
			return fmt.Errorf("variable %s: %w", f.name, err)
		}
		value, err := v.Value(ctx)
		if err != nil {
			return fmt.Errorf("variable %s: %w", f.name, err)
		}
		if err := w.compareTensor("variable "+f.name, value, countingValues[float32](rows, columns)); err != nil {
			return err
		}
		for _, shard := range v.Shards() {
			if shard.Size[0] != f.shardShape[0] || shard.Size[1] != f.shardShape[1] {
				w.addFailure("variable %s: %s holds %v, and %v is right", f.name, shard.Device, shard.Size, f.shardShape)
			}
		}
	}
	uneven := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{logical.Split(in[0], size[1])}
	}, strategy.FunctionOptions{Name: "accept uneven", Store: model.NewStore()})
	var refused *logical.Error
	if _, err := uneven.Run(ctx, countingFloat32(size[1]+1)); err == nil {
		w.addFailure("a split of %d rows over %d logical devices was not refused", size[1]+1, size[1])
	} else if !errors.As(err, &refused) {
		w.addFailure("a split that does not divide is refused with another error: %v", err)
	}
	return nil
}
