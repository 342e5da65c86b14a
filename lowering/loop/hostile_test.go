package loop_test

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	gomlxtrain "github.com/gomlx/gomlx/ml/train"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
)

type hostile struct {
	want  string
	build func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node
}

func TestLoopErrors(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	dense := func(scope *model.Scope, x *graph.Node) *graph.Node {
		return layers.Dense(scope.In("dense"), x, true, 4)
	}
	of := func(n int, block func(scope *model.Scope, x *graph.Node) *graph.Node) func(rc *strategy.ReplicaContext,
		x *graph.Node) *graph.Node {
		return func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return loop.Layers(rc.Scope("layers"), n, x, block, loop.Options{})
		}
	}
	layered := func(block func(l *loop.Layer) loop.Results) func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		return func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return loop.Run(rc.Scope("layers"), 2, loop.Arguments{Carried: []*graph.Node{x}, Sliced: []*graph.Node{x}}, block,
				loop.Options{}).Carried[0]
		}
	}
	count := 0
	for name, c := range map[string]hostile{
		"no layers":       {"the number of layers is 0", of(0, dense)},
		"negative layers": {"the number of layers is -3", of(-3, dense)},
		"endless layers": {fmt.Sprintf("the number of layers is %d; use at most 65536", math.MaxInt),
			of(math.MaxInt, dense)},
		"2^31 layers": {"the number of layers is 2147483648; use at most 65536", of(1<<31, dense)},
		"no block":    {"the block is nil", of(2, nil)},
		"no arguments": {"nothing is carried", func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return loop.Run(rc.Scope("layers"), 2, loop.Arguments{}, func(*loop.Layer) loop.Results { return loop.Results{} },
				loop.Options{}).Carried[0]
		}},
		"nil argument": {"carried argument 0: it is nil", func(rc *strategy.ReplicaContext, _ *graph.Node) *graph.Node {
			return loop.Layers(rc.Scope("layers"), 2, nil, dense, loop.Options{})
		}},
		"a stack of another size": {"dimension 0 of shape [3 4] is not the number of runs, 2",
			func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
				three := graph.BroadcastPrefix(graph.ReduceSum(x, 0), 3)
				return loop.Run(rc.Scope("layers"), 2, loop.Arguments{Carried: []*graph.Node{x}, Sliced: []*graph.Node{three}},
					func(l *loop.Layer) loop.Results { return loop.Results{Carried: l.Carried} }, loop.Options{}).Carried[0]
			}},
		"another shape": {"carried result 0: a layer gets (Float32)[2, 4] and returns (Float32)[2, 3]",
			of(2, func(scope *model.Scope, x *graph.Node) *graph.Node {
				return layers.Dense(scope.In("dense"), x, true, 3)
			})},
		"another dtype": {"returns (Float64)[2, 4]", of(2, func(_ *model.Scope, x *graph.Node) *graph.Node {
			return graph.ConvertDType(x, dtypes.Float64)
		})},
		"too many results": {"a layer gets 1 carried values and returns 2", layered(func(l *loop.Layer) loop.Results {
			return loop.Results{Carried: []*graph.Node{l.Carried[0], l.Carried[0]}}
		})},
		"nil result": {"stacked result 0: it is not a node", layered(func(l *loop.Layer) loop.Results {
			return loop.Results{Carried: l.Carried, Stacked: []*graph.Node{nil}}
		})},
		"a name that no tensor has": {`no tensor of the block has the name "attention"`, func(rc *strategy.ReplicaContext,
			x *graph.Node) *graph.Node {
			return loop.Layers(rc.Scope("layers"), 2, x, dense, loop.Options{Keep: remat.Names("attention")})
		}},
		"kept on the host of CPU devices": {"CPU devices have no separate host memory", func(rc *strategy.ReplicaContext,
			x *graph.Node) *graph.Node {
			return loop.Layers(rc.Scope("layers"), 2, x, dense, loop.Options{Keep: remat.Products().OnHost()})
		}},
		"a node from outside": {"from outside; pass it as an argument", func(rc *strategy.ReplicaContext,
			x *graph.Node) *graph.Node {
			y := layers.Dense(rc.Scope("outside"), x, true, 4)
			return loop.Layers(rc.Scope("layers"), 2, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				return graph.Add(dense(scope, x), y)
			}, loop.Options{})
		}},
		"a variable of another shape": {"the store has it as (Float32)[4, 4], and 2 layers of (Float32)[4, 4] are " +
			"(Float32)[2, 4, 4]", func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = dense(rc.Scope("layers"), x)
			return loop.Layers(rc.Scope("layers"), 2, x, dense, loop.Options{})
		}},
		"another number of layers": {"and 3 layers of (Float32)[4, 4] are (Float32)[3, 4, 4]",
			func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
				x = loop.Layers(rc.Scope("layers"), 2, x, dense, loop.Options{})
				return loop.Layers(rc.Scope("layers"), 3, x, dense, loop.Options{})
			}},
		"variables named by counting": {"the block created it in the first trace, but not in a later trace",
			of(2, func(scope *model.Scope, x *graph.Node) *graph.Node {
				count++
				return layers.Dense(scope.In("dense_%d", count), x, true, 4)
			})},
		"shapes that change": {"in a later trace", of(2, func(scope *model.Scope, x *graph.Node) *graph.Node {
			count++
			scope.VariableWithShape("w", shapes.Make(dtypes.Float32, count)).NodeValue(x.Graph())
			return x
		})},
		"a variable that is set to another shape": {`variable "/layers/w": a layer sets it to a value of (Float32)[2, 4]`,
			of(2, func(scope *model.Scope, x *graph.Node) *graph.Node {
				scope.VariableWithShape("w", shapes.Make(dtypes.Float32, 4)).SetNodeValue(x)
				return x
			})},
		"a block that fails": {"of its own making", of(2, func(scope *model.Scope, x *graph.Node) *graph.Node {
			dense(scope, x)
			panic(&errkind.Fault{Op: "test", Reason: "of its own making", Class: errkind.ValueError})
		})},
		"variables without a scope": {"the loop has no scope", func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return loop.Layers(nil, 2, x, dense, loop.Options{})
		}},
		"random numbers without a scope": {"the loop has no scope", func(_ *strategy.ReplicaContext,
			x *graph.Node) *graph.Node {
			return loop.Layers(nil, 2, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				return graph.Add(x, scope.RandomNormal(x.Graph(), x.Shape()))
			}, loop.Options{})
		}},
		"a node that is let out": {"computed inside a loop or a block, and used outside", func(rc *strategy.ReplicaContext,
			x *graph.Node) *graph.Node {
			var out *graph.Node
			loop.Layers(nil, 2, x, func(_ *model.Scope, x *graph.Node) *graph.Node {
				out = graph.Mul(x, x)
				return out
			}, loop.Options{})
			return out
		}},
		"a per-step update": {"per-step updates and nodes inside of a loop",
			of(2, func(scope *model.Scope, x *graph.Node) *graph.Node {
				gomlxtrain.AddPerStepUpdateGraphFn(scope, x.Graph(), func(*model.Scope, *graph.Graph) {})
				return x
			})},
		"a gradient of a gradient of nested regions": {"a gradient of its gradient is requested, and it contains another " +
			"region", func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			y := loop.Layers(rc.Scope("layers"), 2, x, func(_ *model.Scope, x *graph.Node) *graph.Node {
				return remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node { return graph.Mul(x, x) })
			}, loop.Options{})
			first := graph.Gradient(graph.ReduceAllSum(y), x)[0]
			return graph.Gradient(graph.ReduceAllSum(first), x)[0]
		}},
		"in a closure": {"it is inside a closure", func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			cond := graph.NewClosure(rc.Graph(), func(g *graph.Graph) []*graph.Node {
				return []*graph.Node{graph.LessThan(graph.ReduceAllSum(graph.Parameter(g, "x", x.Shape())),
					graph.Const(g, float32(1)))}
			})
			body := graph.NewClosure(rc.Graph(), func(g *graph.Graph) []*graph.Node {
				return []*graph.Node{loop.Layers(nil, 2, graph.Parameter(g, "x", x.Shape()),
					func(_ *model.Scope, x *graph.Node) *graph.Node { return graph.Mul(x, x) }, loop.Options{})}
			})
			return graph.While(cond, body, x)[0]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			store := strategytest.SeededStore()
			_, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{c.build(rc, in[0])}
			}, strategy.FunctionOptions{Store: store}).Run(context.Background(), [][]float32{{1, 2, 3, 4}, {5, 6, 7, 8}})
			require.ErrorContains(t, err, c.want)
			var fault errkind.Error
			require.ErrorAs(t, err, &fault)
			assert.NotEqual(t, errkind.Unknown, errkind.KindOf(err))
		})
	}
}

func TestLoopRequiresStrategyBackend(t *testing.T) {
	host, err := gobackend.New("")
	require.NoError(t, err)
	defer host.Finalize()
	g := graph.NewGraph(host, "plain")
	defer g.Finalize()
	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2))
	assert.PanicsWithError(t,
		`loop: a graph of backend "Go Backend" has no loops over layers; trace the step through a strategy`, func() {
			loop.Layers(nil, 2, x, func(_ *model.Scope, x *graph.Node) *graph.Node { return x }, loop.Options{})
		})
}

// The programs of 2 and of 48 layers differ only in numbers.
func TestProgramSizeDoesNotDependOnDepth(t *testing.T) {
	digits := regexp.MustCompile(`\d+`)
	for _, mesh := range [][2]int{{1, 1}, {2, 2}} {
		s := strategytest.New(t, mesh[0], mesh[1])
		text := func(n int) string {
			loss := lossSum(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
				return loop.Layers(rc.Scope("layers"), n, x, layer(mesh[1]), loop.Options{Keep: remat.Products()})
			})
			step := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				l := loss(rc, in)
				return append(rc.Scope().BuildTrainableVariablesGradientsGraph(l), l)
			}, strategy.FunctionOptions{Store: strategytest.SeededStore()})
			x, y := strategytest.BatchShapes(32)
			m, err := step.Lowered(context.Background(), x, y)
			require.NoError(t, err)
			again, err := step.Lowered(context.Background(), x, y)
			require.NoError(t, err)
			require.Equal(t, string(m.Text), string(again.Text), "the store has the variables now")
			return digits.ReplaceAllString(string(m.Text), "#")
		}
		assert.Equal(t, text(2), text(48))
	}
}
