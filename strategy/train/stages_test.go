package train_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// sameText traces a step several times, with new and with existing strategies and stores, and
// requires the same program. The iteration order of Go maps differs each time.
func sameText(t *testing.T, lowered func(fresh bool) []byte) {
	t.Helper()
	want := lowered(true)
	for i := range 5 {
		for _, fresh := range []bool{false, true} {
			got := lowered(fresh)
			if bytes.Equal(want, got) {
				continue
			}
			at := 0
			for at < min(len(want), len(got)) && want[at] == got[at] {
				at++
			}
			from := max(at-300, 0)
			t.Errorf("trace %d (of a new store %t) differs at byte %d:\n%s\n--- is now\n%s", i, fresh, at,
				want[from:min(at+300, len(want))], got[from:min(at+300, len(got))])
			return
		}
	}
}

// optimizersOf are GoMLX's optimizers that accept gradients, with their options.
var optimizersOf = map[string]func() optimizer.Interface{
	"adam":    func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-2).Done() },
	"adamw":   func() optimizer.Interface { return optimizer.Adam().WeightDecay(0.1).WithBackoffSteps(2).Done() },
	"adamax":  func() optimizer.Interface { return optimizer.Adam().Adamax().Done() },
	"rmsprop": func() optimizer.Interface { return optimizer.RMSProp().Done() },
	"sgd":     func() optimizer.Interface { return optimizer.StochasticGradientDescent().Done() },
}

// usesAll is a step with everything that has variables: layers, regularizers, random numbers,
// averages, and variables of the scope between variables of the store.
func usesAll(scope []*strategy.Variable, count *strategy.Variable) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := in[0]
		for i, v := range scope {
			at := rc.Scope(fmt.Sprintf("layer%d", i))
			at.SetParam(regularizer.ParamL2, 1e-3)
			at.SetParam(regularizer.ParamL1, 1e-4)
			x = layers.Dense(at, x, true, 8)
			x = norm.LayerNorm(at, x, -1).Done()
			x = layers.DropoutStatic(at, x, 0.1)
			x = graph.Mul(graph.Tanh(x), graph.ExpandLeftToRank(rc.Read(v), 2))
		}
		x = norm.BatchNorm(rc.Scope("batch"), x, -1).Done()
		rc.AssignAdd(count, graph.OnesLike(rc.Read(count)))
		return graph.ReduceAllMean(graph.Square(graph.Sub(x, in[1])))
	}
}

func TestEveryTraceOfATrainingStepGivesTheSameText(t *testing.T) {
	sys := plugintest.System(t, 8)
	ctx := context.Background()
	for name, opt := range optimizersOf {
		for _, rows := range []int{8, 7} {
			for _, guard := range []train.NonFinite{train.Apply, train.Skip} {
				t.Run(fmt.Sprintf("%s, %d rows, %s", name, rows, guard), func(t *testing.T) {
					var s *strategy.TPUStrategy
					var store *model.Store
					var scope []*strategy.Variable
					var count *strategy.Variable
					sameText(t, func(fresh bool) []byte {
						if fresh {
							var err error
							s, err = strategy.New(sys, strategy.Options{Compiler: plugintest.Programs(t), Replicas: 4, LogicalDevices: 2,
								Variables: logical.Rules{logical.Match(`layer.*/weights`, logical.SplitInto(1, 2))}})
							require.NoError(t, err)
							t.Cleanup(func() { require.NoError(t, s.Close()) })
							store, scope = model.NewStore(), nil
							for i := range 3 {
								v, err := s.NewVariable(ctx, make([]float32, 8), strategy.VariableOptions{Name: fmt.Sprintf("v%d", i)})
								require.NoError(t, err)
								scope = append(scope, v)
							}
							count, err = s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "count",
								Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum, Trainable: new(bool)})
							require.NoError(t, err)
						}
						step := strategytest.OK(train.New(s, store, opt(), usesAll(scope, count), train.Options{NonFinite: guard}))
						x := shapes.Make(dtypes.Float32, rows, 8)
						m, err := step.Lowered(ctx, x, x)
						require.NoError(t, err)
						return m.Text
					})
				})
			}
		}
	}
}
