package strategy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// TestProcessesSkipAndStopTogether poisons the rows of one process: all of them decide
// alike, and count alike.
func TestProcessesSkipAndStopTogether(t *testing.T) {
	sys := openCPU(t, 4)
	all(t, onHosts(t, sys, 2, strategy.Options{Replicas: 4}, 0, func(ctx context.Context, s *strategy.TPUStrategy) error {
		store := model.NewStore()
		w, err := s.NewVariable(ctx, firstW, strategy.VariableOptions{Name: "w"})
		if err != nil {
			return err
		}
		make := func(mode strategy.NonFinite, name string) *strategy.TrainStep {
			return s.TrainStep(store, optimizer.Adam().LearningRate(0.1).Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				return squares(rc.Read(w), rc.Scope().VariableWithValue("b", []float32{0, 0}).NodeValue(rc.Graph()), in)
			}, strategy.TrainOptions{NonFinite: mode, Name: name})
		}
		skip, stop := make(strategy.NonFiniteSkip, "skip"), make(strategy.NonFiniteStop, "stop")
		for _, x := range [][][]float32{trainX, badX, trainX} {
			before := flat(t, w)
			if _, err := skip.Run(ctx, x, trainY); err != nil {
				return err
			}
			assert.Equal(t, x[3][0] != x[3][0], fmt.Sprint(before) == fmt.Sprint(flat(t, w)))
		}
		if _, err := skip.RunSteps(ctx, []any{badX, trainY}, []any{trainX, trainY}); err != nil {
			return err
		}
		n, err := skip.NonFinite(ctx)
		if err != nil {
			return err
		}
		assert.Equal(t, strategy.NonFiniteSteps{Steps: 5, Skipped: 2, Last: 4, What: "the loss"}, n)
		if _, err := stop.Run(ctx, trainX, trainY); err != nil {
			return err
		}
		for range 2 {
			_, err = stop.Run(ctx, badX, trainY)
			var stopped *strategy.NonFiniteError
			if !errors.As(err, &stopped) {
				return fmt.Errorf("it did not stop: %w", err)
			}
			assert.Equal(t, int64(2), stopped.Step)
		}
		if err := stop.ResetNonFinite(ctx); err != nil {
			return err
		}
		_, err = stop.Run(ctx, trainX, trainY)
		return err
	}))
}

// TestStepsThatLookForNonFiniteCompileAheadOfTime compiles them for TPUs, also for an
// uneven batch and with a variable of the scope.
func TestStepsThatLookForNonFiniteCompileAheadOfTime(t *testing.T) {
	if !aotChild(t) {
		return
	}
	ctx := context.Background()
	s := ahead(t, "v5e:2x2", strategy.Options{Replicas: 2, LogicalDevices: 2})
	for _, mode := range []strategy.NonFinite{strategy.NonFiniteSkip, strategy.NonFiniteStop} {
		for _, rows := range []int{4, 3} {
			step := s.TrainStep(model.NewStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				return squares(rc.Scope().VariableWithValue("w", firstW).NodeValue(rc.Graph()), rc.Scope().VariableWithValue("b", []float32{0, 0}).NodeValue(rc.Graph()), in)
			}, strategy.TrainOptions{NonFinite: mode})
			x := shapes.Make(dtypes.Float32, rows, 2)
			compiled, err := step.Compiled(ctx, x, x)
			require.NoError(t, err, "%s of %d rows", mode, rows)
			var file bytes.Buffer
			require.NoError(t, compiled.Save(&file))
			assert.NotEmpty(t, file.Bytes())
		}
	}
}
