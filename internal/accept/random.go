package accept

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/strategy"
)

const numDrawn = 4096

// randomFunction returns a function that generates random numbers. If own is true, each replica
// generates different numbers.
func randomFunction(s *strategy.TPUStrategy, own bool) *strategy.Function {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(17))
	return s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x := rc.Scope().RandomUniform(rc.Graph(), shapes.Make(dtypes.Float32, numDrawn))
		return []*graph.Node{x, graph.ReduceAllMean(x)}
	}, strategy.FunctionOptions{Name: fmt.Sprintf("accept random own=%t", own), Store: store, MirroredRandomNumbers: !own})
}

// checkRandomNumbers tests that replicas generate equal or different numbers as requested, that
// steps generate different numbers, and that equal seeds generate equal numbers.
func checkRandomNumbers(ctx context.Context, w *partRun) error {
	for _, own := range []bool{false, true} {
		w.setActivity("numbers of their own: %t", own)
		once, err := w.drawNumbers(ctx, own)
		if err != nil {
			return err
		}
		if !own {
			continue
		}
		if again, err := w.drawNumbers(ctx, own); err != nil {
			return err
		} else if !slices.EqualFunc(once, again, slices.Equal) {
			w.addFailure("one seed draws different numbers")
		}
	}
	return nil
}

// drawNumbers returns the numbers that the first replica of this host generates in two steps.
func (w *partRun) drawNumbers(ctx context.Context, own bool) (steps [][]float32, err error) {
	s, err := w.newStrategy(strategy.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	f := randomFunction(s, own)
	for range 2 {
		var first []float32
		err := w.runOnReplicas(ctx, s, f, nil, func(r int, got []*tensors.Tensor) error {
			numbers := tensors.MustCopyFlatData[float32](got[0])
			if m := tensors.ToScalar[float32](got[1]); m < 0.45 || m > 0.55 || slices.Min(numbers) < 0 ||
				slices.Max(numbers) >= 1 {
				w.addFailure("own=%t, replica %d: not uniform from 0 to 1: mean %g, from %g to %g", own, r, m, slices.Min(numbers),
					slices.Max(numbers))
			}
			switch {
			case first == nil:
				first = numbers
			case slices.Equal(first, numbers) == own:
				w.addFailure("own=%t: replicas %d and %d draw equal numbers: %t", own, s.LocalReplicas()[0], r, !own)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		steps = append(steps, first)
	}
	if slices.Equal(steps[0], steps[1]) {
		w.addFailure("own=%t: two steps draw the same numbers", own)
	}
	return steps, nil
}
