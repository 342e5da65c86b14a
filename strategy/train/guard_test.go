package train_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

func TestTheGradientThatIsNotFiniteIsNamed(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	w, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "root"})
	require.NoError(t, err)
	_, err = strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			b := rc.Scope().VariableWithValue("b", float32(1)).NodeValue(rc.Graph())
			return graph.ReduceAllMean(graph.Add(graph.Mul(in[0], b), graph.Sqrt(rc.Read(w)))) // of infinite slope at 0
		}, train.Options{NonFinite: train.Stop})).Run(ctx, []float32{1, 2})
	require.ErrorContains(t, err, `train_step: step 1 was not taken, as the gradient of "root" is not finite`)
	assert.Equal(t, []float32{0}, strategytest.Flat(t, w))
}

// One process has rows that are not finite. All processes make the same decision and count the same
// steps.
func TestProcessesSkipAndStopTogether(t *testing.T) {
	sys := plugintest.System(t, 4)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Replicas: 4},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			store := model.NewStore()
			w, err := s.NewVariable(ctx, strategytest.LinearW, strategy.VariableOptions{Name: "w"})
			if err != nil {
				return err
			}
			make := func(mode train.NonFinite, name string) *train.Step {
				return strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.1).Done(),
					func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
						return strategytest.Linear(rc.Read(w), rc.Scope().VariableWithValue("b", []float32{0, 0}).NodeValue(rc.Graph()),
							in)
					}, train.Options{NonFinite: mode, Name: name}))
			}
			skip, stop := make(train.Skip, "skip"), make(train.Stop, "stop")
			for _, x := range [][][]float32{strategytest.LinearX, badX, strategytest.LinearX} {
				before := strategytest.Flat(t, w)
				if _, err := skip.Run(ctx, x, strategytest.LinearY); err != nil {
					return err
				}
				assert.Equal(t, x[3][0] != x[3][0], fmt.Sprint(before) == fmt.Sprint(strategytest.Flat(t, w)))
			}
			if _, err := skip.RunSteps(ctx, []any{badX, strategytest.LinearY}, []any{strategytest.LinearX,
				strategytest.LinearY}); err != nil {
				return err
			}
			n, err := skip.NonFinite(ctx)
			if err != nil {
				return err
			}
			assert.Equal(t, train.NonFiniteSteps{Steps: 5, Skipped: 2, Last: 4, What: "the loss"}, n)
			if _, err := stop.Run(ctx, strategytest.LinearX, strategytest.LinearY); err != nil {
				return err
			}
			for range 2 {
				_, err = stop.Run(ctx, badX, strategytest.LinearY)
				var stopped *train.NonFiniteError
				if !errors.As(err, &stopped) {
					return fmt.Errorf("it did not stop: %w", err)
				}
				assert.Equal(t, int64(2), stopped.Step)
			}
			if err := stop.ResetNonFinite(ctx); err != nil {
				return err
			}
			_, err = stop.Run(ctx, strategytest.LinearX, strategytest.LinearY)
			return err
		}))
}
