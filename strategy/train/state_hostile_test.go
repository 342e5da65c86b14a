package train_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// custom is a user-defined optimizer. It subtracts the result of change from each variable.
type custom struct {
	change func(scope *model.Scope, v *model.Variable, gradient *graph.Node) *graph.Node
}

func (c custom) UpdateGraph(*model.Scope, *graph.Graph, *graph.Node) {}
func (c custom) Clear(*model.Scope) error                            { return nil }

func (c custom) UpdateGraphWithGradients(scope *model.Scope, gradients []*graph.Node, _ dtypes.DType) {
	i := 0
	for v := range scope.IterVariables() {
		if g := gradients[0].Graph(); v.Trainable && v.InUseByGraph(g) {
			v.SetNodeValue(graph.Sub(v.NodeValue(g), c.change(scope, v, gradients[i])))
			i++
		}
	}
}

// customized runs two steps with an optimizer and returns the trained variable.
func customized(t *testing.T, opts strategy.Options, opt optimizer.Interface) (*strategy.TPUStrategy, *model.Store,
	error) {
	t.Helper()
	s := strategytest.On(t, plugintest.System(t, 4), opts)
	store := model.NewStore()
	step := strategytest.OK(train.New(s, store, opt, func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		w := rc.Scope("m").VariableWithValue("w", [][]float32{{1, 2, 3, 4, 5, 6}, {1, 1, 1, 1, 1, 1}}).NodeValue(rc.Graph())
		return graph.ReduceAllMean(graph.Square(graph.MatMul(in[0], w)))
	}, train.Options{}))
	var err error
	for range 2 {
		if _, err = step.Run(t.Context(), [][]float32{{1, 2}, {3, 4}, {5, 6}, {7, 8}}); err != nil {
			break
		}
	}
	return s, store, err
}

func TestOptimizersOfOnesOwnUpdateParts(t *testing.T) {
	scaled := func(scope *model.Scope, v *model.Variable, gradient *graph.Node) *graph.Node {
		return graph.MulScalar(gradient, 0.001)
	}
	state := func(value any, init model.VariableInitializer) func(*model.Scope, *model.Variable, *graph.Node) *graph.Node {
		return func(scope *model.Scope, v *model.Variable, gradient *graph.Node) *graph.Node {
			of := scope.Store().Scope("/mine" + v.Scope())
			var sum *model.Variable
			if value != nil {
				sum = of.VariableWithValue(v.Name()+"_sum", tensors.FromScalarAndDimensions(value.(float32),
					v.Shape().Dimensions...))
			} else {
				sum = of.WithInitializer(init).VariableWithShape(v.Name()+"_sum", v.Shape())
			}
			sum.SetTrainable(false)
			now := graph.Add(sum.NodeValue(gradient), graph.Square(gradient))
			sum.SetNodeValue(now)
			return graph.MulScalar(graph.Div(gradient, graph.Sqrt(now)), 0.1)
		}
	}
	for name, change := range map[string]func(*model.Scope, *model.Variable, *graph.Node) *graph.Node{
		"no state":                  scaled,
		"state of ones":             state(float32(1), nil),
		"state with an initializer": state(nil, initializer.One),
	} {
		t.Run(name, func(t *testing.T) {
			flat := func(opts strategy.Options) (all []float32) {
				s, store, err := customized(t, opts, custom{change})
				require.NoError(t, err)
				for _, v := range s.Variables(store).All() {
					all = append(all, strategytest.Flat(t, v)...)
				}
				return all
			}
			want := flat(strategy.Options{Replicas: 1, LogicalDevices: 1})
			for _, of := range stages[1:] {
				assert.InEpsilonSlice(t, want, flat(strategy.Options{Variables: strategytest.Share(of, 1)}), 1e-4, of.String())
			}
		})
	}
}

func TestARuleForTheStateAloneIsRefused(t *testing.T) {
	opts := strategy.Options{LogicalDevices: 2,
		Variables: append(logical.Rules{logical.Match(`mine`, logical.SplitInto(2, 1))},
			strategytest.Share(logical.ShardGradients, 1)...)}
	_, _, err := customized(t, opts, custom{func(scope *model.Scope, v *model.Variable, gradient *graph.Node) *graph.Node {
		sum := scope.Store().Scope("/mine"+v.Scope()).WithInitializer(initializer.Zero).VariableWithShape(v.Name()+"_sum",
			v.Shape()).SetTrainable(false)
		sum.SetNodeValue(gradient)
		return gradient
	}})
	var trace *strategy.TraceError
	require.ErrorAs(t, err, &trace)
	assert.ErrorContains(t, err, `rule 0 splits dimension 0 over the logical devices, which as state of "/m/w" is cut `+
		`over the replicas; give it the rule of that variable`)
}
