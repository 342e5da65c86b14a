package remat_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// regression is a model with two layers in blocks built by wrap. The layers contain an annotation
// and a collective.
func regression(p int, wrap func(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := in[0]
		for i := range 2 {
			scope := rc.Scope(fmt.Sprintf("layer_%d", i))
			x = wrap(x, func(x *graph.Node) *graph.Node {
				h := layers.Dense(scope.In("dense"), x, true, 8)
				if p > 1 {
					h = logical.Split(h, 1, p)
				}
				h = graph.Tanh(h)
				h = graph.Sub(h, rc.AllReduce(strategy.Mean, graph.ReduceAndKeep(h, graph.ReduceMean, 0)))
				return remat.Name(graph.Mul(h, h), "square")
			})
		}
		return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), x, true, 1), in[1])))
	}
}

func losses(t *testing.T, s *strategy.TPUStrategy, loss train.Loss) []float64 {
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(), loss,
		train.Options{}))
	return strategytest.Losses(t, step, 0, 5)
}

func TestBlocksDoNotChangeResults(t *testing.T) {
	sys := plugintest.System(t, 4)
	for _, mesh := range [][2]int{{1, 1}, {2, 2}} {
		s := strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
		want := losses(t, s,
			regression(mesh[1], func(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node { return f(x) }))
		policies := []remat.Policy{remat.Everything(), remat.Nothing()}
		if mesh[1] > 1 {
			policies = []remat.Policy{remat.Nothing(), remat.Products(), remat.Names("square")}
		}
		for _, keep := range policies {
			t.Run(fmt.Sprintf("%dx%d/%s", mesh[0], mesh[1], keep), func(t *testing.T) {
				got := losses(t, s,
					regression(mesh[1], func(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node {
						return remat.Block(keep,
							x, f)
					}))
				assert.InDeltaSlice(t, want, got, 1e-5)
			})
		}
	}
}

func TestPolicyAnd(t *testing.T) {
	for want, p := range map[string]remat.Policy{
		"Everything()":                    remat.Nothing().And(remat.Everything()),
		"Nothing()":                       remat.Nothing().And(remat.Nothing()),
		"Products()":                      remat.Nothing().And(remat.Products()),
		`Names("a", "b")`:                 remat.Names("a").And(remat.Names("a", "b")),
		`Products().And(Names("a", "b"))`: remat.Names("a", "b").And(remat.Products()),
	} {
		assert.Equal(t, want, p.String())
	}
	assert.Equal(t, remat.Policy{}, remat.Everything())
}

func TestBlockErrors(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	same := func(x *graph.Node) *graph.Node { return x }
	many := func(in []*graph.Node) []*graph.Node { return in }
	for want, build := range map[string]func(x *graph.Node) *graph.Node{
		"the function is nil": func(x *graph.Node) *graph.Node {
			return remat.Block(remat.Nothing(), x,
				nil)
		},
		"there are no arguments": func(x *graph.Node) *graph.Node {
			return remat.BlockMany(
				remat.Nothing(), nil, many)[0]
		},
		"argument 0 is nil": func(x *graph.Node) *graph.Node {
			return remat.Block(remat.Nothing(),
				nil, same)
		},
		`no tensor of the block has the name "lost"`: func(x *graph.Node) *graph.Node {
			return remat.Block(
				remat.Names("lost"), x, same)
		},
		"blocks cannot keep values in host memory": func(x *graph.Node) *graph.Node {
			return remat.Block(remat.Nothing().OnHost(), x, same)
		},
		"the name is empty": func(x *graph.Node) *graph.Node { return remat.Name(x, "") },
		"the node is nil":   func(*graph.Node) *graph.Node { return remat.Name(nil, "x") },
		"it returns nothing": func(x *graph.Node) *graph.Node {
			remat.BlockMany(remat.Nothing(), []*graph.Node{x}, func([]*graph.Node) []*graph.Node { return nil })
			return x
		},
		"result 0: it is not a node of this graph": func(x *graph.Node) *graph.Node {
			return remat.Block(remat.Nothing(), x, func(*graph.Node) *graph.Node { return nil })
		},
	} {
		_, err := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{build(in[0])}
		}, strategy.FunctionOptions{}).Run(context.Background(), []float32{1, 2})
		require.ErrorContains(t, err, want)
		var fault *errkind.Fault
		require.ErrorAs(t, err, &fault, want)
		assert.NotEqual(t, errkind.Unknown, fault.Kind(), want)
	}
}
