package train_test

import (
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// The optimizer updates the value that a step has scattered into a variable, like a value that the
// step has assigned.
func TestAStepTrainsAVariableThatItScattersInto(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	values := map[string]any{}
	for name, write := range map[string]func(rc *strategy.ReplicaContext, v *strategy.Variable){
		"assign": func(rc *strategy.ReplicaContext, v *strategy.Variable) { rc.AssignAdd(v, []float32{0, 8, 0}) },
		"scatter": func(rc *strategy.ReplicaContext, v *strategy.Variable) {
			rc.Scatter(strategy.ScatterAdd, v, graph.Const(rc.Graph(), []int32{1}), graph.Const(rc.Graph(), []float32{8}))
		},
	} {
		v := strategytest.OK(s.NewVariable(t.Context(), []float32{1, 2, 3}, strategy.VariableOptions{Name: name,
			Aggregation: strategy.AggregateMean}))
		sgd := optimizer.StochasticGradientDescent().WithLearningRate(1).WithDecay(false).Done()
		step := strategytest.OK(train.New(s, model.NewStore(), sgd, func(rc *strategy.ReplicaContext,
			in []*graph.Node) *graph.Node {
			loss := graph.Mul(graph.ReduceAllSum(rc.Read(v)), graph.ReduceAllMean(in[0]))
			write(rc, v)
			return loss
		}, train.Options{}))
		strategytest.OK(step.Run(t.Context(), []float32{1, 1, 1, 1}))
		values[name] = strategytest.OK(v.Value(t.Context())).Value()
	}
	assert.Equal(t, values["assign"], values["scatter"])
	assert.Greater(t, values["scatter"].([]float32)[1], float32(8))
}
