package train_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
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

// custom is an optimizer of a user's own: it subtracts what change makes of each variable and its
// gradient.
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

// customised takes two steps with an optimizer and returns the variable that it trained.
func customised(t *testing.T, opts strategy.Options, opt optimizer.Interface) (*strategy.TPUStrategy, *model.Store, error) {
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
				sum = of.VariableWithValue(v.Name()+"_sum", tensors.FromScalarAndDimensions(value.(float32), v.Shape().Dimensions...))
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
				s, store, err := customised(t, opts, custom{change})
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

func TestWhatCannotBeUpdatedInPartsIsRefused(t *testing.T) {
	norm := func(_ *model.Scope, _ *model.Variable, gradient *graph.Node) *graph.Node {
		return graph.Div(gradient, graph.L2Norm(gradient))
	}
	differing := func(scope *model.Scope, v *model.Variable, gradient *graph.Node) *graph.Node {
		first := tensors.FromShape(v.Shape())
		first.MustMutableFlatData(func(flat any) { flat.([]float32)[0] = 7 })
		sum := scope.Store().Scope("/mine"+v.Scope()).VariableWithValue(v.Name()+"_sum", first).SetTrainable(false)
		return graph.Add(gradient, sum.NodeValue(gradient))
	}
	elsewhere := func(scope *model.Scope, _ *model.Variable, gradient *graph.Node) *graph.Node {
		last := scope.Store().Scope("/mine").WithInitializer(initializer.Zero).VariableWithShape("last", gradient.Shape()).SetTrainable(false)
		last.SetNodeValue(gradient)
		return gradient
	}
	integers := func(scope *model.Scope, v *model.Variable, gradient *graph.Node) *graph.Node {
		of := scope.Store().Scope("/mine"+v.Scope()).WithInitializer(initializer.Zero).VariableWithShape("w_count", shapes.Make(dtypes.Int32, v.Shape().Dimensions...)).SetTrainable(false)
		of.SetNodeValue(graph.AddScalar(of.NodeValue(gradient), 1))
		return gradient
	}
	opts := strategy.Options{Variables: strategytest.Share(logical.ShardGradients, 1)}
	for name, c := range map[string]struct {
		opts   strategy.Options
		change func(*model.Scope, *model.Variable, *graph.Node) *graph.Node
		want   string
	}{
		"a norm":                     {opts, norm, `it combines the elements of a gradient or of a variable (ReduceSum), of which each replica has a part; use an optimizer that treats each element apart, or keep the state whole by a rule with logical.ShardNothing`},
		"first values that differ":   {opts, differing, `variable "/mine/m/w_sum": the optimizer gives state that the replicas share out a first value whose elements differ; make it with VariableWithShape`},
		"state that belongs nowhere": {opts, elsewhere, `variable "/mine/last": the optimizer writes what it makes of parts to it, and it is the state of no variable; keep the state of a variable below`},
		"state of integers":          {opts, integers, `variable "/mine/m/w_count"`},
		"a rule for the state alone": {strategy.Options{LogicalDevices: 2,
			Variables: append(logical.Rules{logical.Match(`mine`, logical.SplitInto(2, 1))}, strategytest.Share(logical.ShardGradients, 1)...)}, func(scope *model.Scope, v *model.Variable, gradient *graph.Node) *graph.Node {
			sum := scope.Store().Scope("/mine"+v.Scope()).WithInitializer(initializer.Zero).VariableWithShape(v.Name()+"_sum", v.Shape()).SetTrainable(false)
			sum.SetNodeValue(gradient)
			return gradient
		}, `rule 0 splits dimension 0 over the logical devices, which as state of "/m/w" is cut over the replicas; give it the rule of that variable`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := customised(t, c.opts, custom{c.change})
			var trace *strategy.TraceError
			require.ErrorAs(t, err, &trace)
			assert.ErrorContains(t, err, c.want)
		})
	}
}
