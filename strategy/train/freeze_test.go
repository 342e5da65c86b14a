package train_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestFrozenVariablesStay(t *testing.T) {
	sys := plugintest.System(t, 8)
	batches := sums(16, 16)
	begins := func(loss train.Loss) trained { // initial values do not depend on the mesh
		s := strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 1})
		return trainOn(t, s, optimizer.StochasticGradientDescent().WithLearningRate(1e-30).Done(), loss, train.Options{},
			batches[0])
	}
	ofOdd, ofDeep := begins(odd(1)), begins(deep(remat.Products()))
	adam := func() optimizer.Interface { return optimizer.Adam().WeightDecay(0.1).LearningRate(0.02).Done() }
	for _, c := range []struct {
		r, p  int
		state logical.StateSharding
		loss  func(p int) train.Loss
		o     train.Options
	}{
		{1, 1, logical.ShardNothing, odd, train.Options{Freeze: []string{`^/wide/`, `odd/.*biases`}}},
		{8, 1, logical.ShardParameters, odd, train.Options{Freeze: []string{`^/wide/`, `odd/.*biases`}}},
		{4, 2, logical.ShardOptimizer, odd, train.Options{Freeze: []string{`wide|odd/.*biases`}, Accumulate: 2}},
		{2, 4, logical.ShardNothing, odd, train.Options{FreezeIf: func(path string) bool {
			return strings.HasPrefix(path,
				"/wide/") || path == "/odd/dense/biases"
		}}},
		{2, 1, logical.ShardParameters, func(int) train.Loss { return deep(remat.Products()) },
			train.Options{Freeze: []string{`/layers/(up|norm)`}}},
	} {
		t.Run(fmt.Sprintf("%dx%d %s", c.r, c.p, c.state), func(t *testing.T) {
			o, first := sharded(c.r, c.p, c.state), ofOdd
			if strings.Contains(fmt.Sprint(c.o.Freeze), "layers") {
				o, first = deepOptions(c.r, c.p, c.state), ofDeep
			}
			s := strategytest.On(t, sys, o)
			frozen := func(path string) bool {
				return strings.HasPrefix(path, "/wide/") || path == "/odd/dense/biases" || strings.HasPrefix(path, "/layers/up") ||
					strings.HasPrefix(path, "/layers/norm")
			}
			got := trainOn(t, s, adam(), c.loss(c.p), c.o, batches...)
			for path, value := range got.values {
				if first.values[path] == nil {
					assert.False(t, frozen(path[strings.LastIndex(path, "Adam")+4:]), "%s: state of a frozen variable", path)
					continue
				}
				assert.Equal(t, frozen(path), first.values[path].InDelta(value, 1e-20), path)
			}
		})
	}
}

// There is no backward pass for a frozen variable, in a step or in a loop over layers.
func TestFrozenVariablesTakeNoBackwardPass(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	count := func(loss train.Loss, o train.Options) (products, reductions int) {
		step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.StochasticGradientDescent().Done(), loss,
			o))
		m, err := step.Lowered(t.Context(), sums(4)[0]...)
		require.NoError(t, err)
		return strings.Count(string(m.Text), `stablehlo.dot_general"`), strings.Count(string(m.Text), `stablehlo.all_reduce"`)
	}
	products, reductions := count(odd(1), train.Options{})
	less, fewer := count(odd(1), train.Options{Freeze: []string{`^/(wide|odd)/`}})
	assert.Equal(t, 4+4*2, products)
	assert.Equal(t, 4+2*2, less, "the backward pass ends at the first trained layer")
	assert.Equal(t, reductions-4, fewer)
	products, reductions = count(deep(remat.Everything()), train.Options{})
	less, fewer = count(deep(remat.Everything()), train.Options{Freeze: []string{`layers/(up|odd)/`}})
	assert.Equal(t, products-2, less)
	assert.Equal(t, reductions-4, fewer)
	less, _ = count(deep(remat.Everything()), train.Options{Freeze: []string{`layers/`}})
	assert.Equal(t, 3+1+2, less, "no backward loop")
}

func TestFreezingUnderPoliciesAndRegularizers(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		rc.Scope().SetParam(regularizer.ParamL1, 10.0) // sets small weights to zero after a step
		return odd(1)(rc, in)
	}
	got := trainOn(t, s, optimizer.Adam().Done(), loss, train.Options{Precision: precision.MixedBFloat16,
		Freeze: []string{`wide`}, Norms: true, ClipNorm: 1}, sums(8)...)
	for _, x := range strategytest.Numbers(t, got.values["/odd/dense/weights"]) {
		assert.Zero(t, x)
	}
	assert.NotZero(t, strategytest.Numbers(t, got.values["/wide/dense/weights"])[0])
}

func TestFreezingThatSaysNothing(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	for want, o := range map[string]train.Options{
		`no trainable variable of the loss matches "hiden"`: {Freeze: []string{"wide", "hiden"}},
		`pattern "(": error parsing regexp`:                 {Freeze: []string{"("}},
		"all trainable variables of the loss are frozen":    {Freeze: []string{"."}},
		"Options.FreezeIf freezes no trainable variable of the loss: they are": {FreezeIf: func(
			string) bool {
			return false
		}},
		`no trainable variable of the loss matches "^/none"`: {Freeze: []string{"^/none"}, Accumulate: 2},
	} {
		step, err := train.New(s, model.NewStore(), optimizer.Adam().Done(), odd(1), o)
		if err == nil {
			_, err = step.Run(t.Context(), sums(8)[0]...)
		}
		assert.ErrorContains(t, err, want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}
