package strategy_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	layerloop "github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// A scope has the variables of one layer of each kind, unless the caller requests that layers share them.
func TestASecondLayerInAScopeIsRefused(t *testing.T) {
	type step func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node
	dense := func(scope *model.Scope, x *graph.Node) *graph.Node { return layers.Dense(scope, x, false, 4) }
	bare := func(scope *model.Scope, x *graph.Node) *graph.Node {
		return graph.MatMul(x, scope.VariableWithShape("weights", shapes.Make(dtypes.Float32, 4, 4)).NodeValue(x.Graph()))
	}
	tied := func(scope *model.Scope, x *graph.Node) *graph.Node {
		return graph.MatMul(x, scope.GetVariable("weights").NodeValue(x.Graph()))
	}
	sys := plugintest.System(t, 2)
	run := func(f step) error {
		strat := strategytest.On(t, sys, strategy.Options{})
		fn := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{f(rc, in[0])}
		}, strategy.FunctionOptions{Store: model.NewStore()})
		_, err := fn.Run(t.Context(), [][]float32{{1, 2, 3, 4}, {1, 2, 3, 4}})
		if err == nil { // and once more, for a batch of another size
			_, err = fn.Run(t.Context(), [][]float32{{1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}})
		}
		return err
	}
	for name, f := range map[string]step{
		"two layers": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return dense(rc.Scope("h"), dense(rc.Scope("h"), x))
		},
		"two layers far down": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return dense(rc.Scope("model", "h"), dense(rc.Scope("model").In("h"), x))
		},
		"two layers in one sub-scope": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return dense(rc.Scope("h").In("1"), dense(rc.Scope("h").In("1"), x))
		},
		"a scope of GoMLX's first": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = dense(rc.Scope().In("h"), x)
			return dense(rc.Scope("h"), x)
		},
		"a scope of GoMLX's last": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = dense(rc.Scope("h"), x)
			return dense(rc.Scope().In("h"), x)
		},
		"two loops": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = layerloop.Layers(rc.Scope("h"), 2, x, dense, layerloop.Options{})
			return layerloop.Layers(rc.Scope("h"), 2, x, dense, layerloop.Options{})
		},
		"scopes that are taken before the layers": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			first, second := rc.Scope("h"), rc.Scope("h")
			return dense(second, dense(first, x))
		},
		"before and in a loop": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = dense(rc.Scope("h"), x)
			return layerloop.Layers(rc.Scope("layers"), 3, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				return dense(rc.Scope("h"), dense(scope.In("own"), x))
			}, layerloop.Options{})
		},
		"in a loop and behind it": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = layerloop.Layers(rc.Scope("layers"), 3, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				return dense(rc.Scope("h"), dense(scope.In("own"), x))
			}, layerloop.Options{})
			return dense(rc.Scope("h"), x)
		},
		"two in a loop": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return layerloop.Layers(rc.Scope("layers"), 3, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				x = dense(rc.Scope("h"), dense(scope.In("own"), x))
				return dense(rc.Scope("h"), x)
			}, layerloop.Options{})
		},
		"in loops in each other": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return layerloop.Layers(rc.Scope("layers"), 3, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				x = layerloop.Layers(scope.In("inner"), 2, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
					return dense(rc.Scope("h"), dense(scope.In("own"), x))
				}, layerloop.Options{})
				return dense(rc.Scope("h"), x)
			}, layerloop.Options{})
		},
		"in a block": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			block := func(x *graph.Node) *graph.Node { return dense(rc.Scope("h"), x) }
			return remat.Block(remat.Nothing(), remat.Block(remat.Nothing(), x, block), block)
		},
	} {
		err := run(f)
		require.Error(t, err, name)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
		assert.Contains(t, err.Error(), "scope_test.go:", name)
		assert.Regexp(t,
			`scope "/(h|model)(/h)?".*in "/(model/)?h.*would share their variables.* give each layer a scope of its own.*Shared`,
			err.Error(), name)
	}
	for name, f := range map[string]step{
		"sub-scopes": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return dense(rc.Scope("conv").In("2"), dense(rc.Scope("conv").In("1"), x))
		},
		"paths in one scope": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return dense(rc.Scope("h", "2"), dense(rc.Scope("h", "1"), x))
		},
		"layers of two kinds": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return layers.DropoutStatic(rc.Scope("h"), dense(rc.Scope("h"), x), 0.1)
		},
		"shared as in GoMLX": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = dense(rc.Scope("h"), x)
			return dense(rc.Scope().Shared("h"), x)
		},
		"any scope of GoMLX": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return dense(rc.Scope().At("h"), dense(rc.Scope("h"), x))
		},
		"a variable that is read again": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = dense(rc.Scope("h"), x)
			return tied(rc.Scope("h", "dense"), x)
		},
		"variables one by one": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			v := func(name string, dims ...int) *graph.Node {
				return rc.Scope("h").VariableWithShape(name, shapes.Make(dtypes.Float32, dims...)).NodeValue(x.Graph())
			}
			return graph.Add(graph.MatMul(x, v("weights", 4, 4)), graph.InsertAxes(v("biases", 4), 0))
		},
		"shared without a sub-scope": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = bare(rc.Scope("h"), x)
			rc.Scope("h").VariableWithShape("biases", shapes.Make(dtypes.Float32, 4))
			return bare(rc.Scope().Shared("h"), x)
		},
		"read again without a sub-scope": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = bare(rc.Scope("h"), x)
			return tied(rc.Scope("h"), tied(rc.Scope("h"), x))
		},
		"requested again without a sub-scope": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return bare(rc.Scope("h"), bare(rc.Scope("h"), x)) // as a model reads the table of an embedding
		},
		"shared behind reads": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = dense(rc.Scope("h"), x)
			x = tied(rc.Scope("h", "dense"), tied(rc.Scope("h", "dense"), x))
			return dense(rc.Scope().Shared("h"), x)
		},
		"a scope of the step in a loop": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			all := rc.Scope("all")
			return layerloop.Layers(rc.Scope("layers"), 3, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				return bare(all, dense(all, dense(scope.In("h"), x)))
			}, layerloop.Options{})
		},
		"variables of a loop without a sub-scope": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = layerloop.Layers(rc.Scope("layers"), 3, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				return bare(rc.Scope("all"), bare(scope, x))
			}, layerloop.Options{})
			return dense(rc.Scope("layers"), x)
		},
		"the root": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return dense(rc.Scope().In("2"), dense(rc.Scope().In("1"), x))
		},
		"a loop over layers": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return layerloop.Layers(rc.Scope("layers"), 3, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				return dense(rc.Scope("all"), dense(scope.In("h"), x)) // is traced twice
			}, layerloop.Options{})
		},
		"a block": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node { return dense(rc.Scope("h"), x) })
		},
	} {
		assert.NoError(t, run(f), name)
	}
}
