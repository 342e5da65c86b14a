package trainer_test

import (
	"bytes"
	"flag"
	"io"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/precision"
	"github.com/tpustrategy/tpustrategy/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/trainer"
)

// A flag that reaches no operation of the model is an error of the step's trace.
func TestAFlagWithoutEffectIsAnError(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	model := func(compute bool, keep func(f *trainer.Flags) remat.Policy) func(f *trainer.Flags) train.Loss {
		return func(f *trainer.Flags) train.Loss {
			return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				x := graph.ConvertDType(in[0], dtypes.Float32)
				if compute {
					x = precision.Compute(x)
				}
				x = remat.Block(keep(f), x, func(x *graph.Node) *graph.Node { return graph.Tanh(layers.Dense(rc.Scope("a"), x, true, 4)) })
				return graph.ReduceAllMean(precision.Output(layers.Dense(rc.Scope("b"), x, true, 1)))
			}
		}
	}
	ignored := func(*trainer.Flags) remat.Policy { return remat.Everything() }
	used := func(f *trainer.Flags) remat.Policy { return f.Keep }
	for name, c := range map[string]struct {
		args []string
		loss func(f *trainer.Flags) train.Loss
		pass bool // the policy to the step
		want string
	}{
		"no flags":             {nil, model(false, ignored), true, ""},
		"float32":              {[]string{"-precision", "f32"}, model(false, ignored), true, ""},
		"bfloat16":             {[]string{"-precision", "bf16"}, model(true, ignored), true, ""},
		"nothing computed":     {[]string{"-precision", "bf16"}, model(false, ignored), true, "no operation of the model computes in BFloat16"},
		"policy not passed":    {[]string{"-precision", "bf16"}, model(true, ignored), false, "flag -precision: it has no effect"},
		"full":                 {[]string{"-remat", "full"}, model(false, used), true, ""},
		"products":             {[]string{"-remat", "products"}, model(false, used), true, ""},
		"none":                 {[]string{"-remat", "none"}, model(false, ignored), true, ""},
		"nothing is in blocks": {[]string{"-remat", "full"}, model(false, ignored), true, "flag -remat: it has no effect"},
	} {
		f := trainer.AddFlags(flag.NewFlagSet("program", flag.ContinueOnError), trainer.Defaults{Steps: 1, Devices: 1})
		require.NoError(t, f.Parse(c.args, io.Discard))
		var o train.Options
		if c.pass {
			o.Precision = f.Precision
		}
		step := strategytest.OK(train.New(s, f.Store(), optimizer.Adam().Done(), f.Loss(c.loss(f)), o))
		m, err := step.Lowered(t.Context(), [][]int32{{1, 2}, {3, 4}})
		if c.want != "" {
			require.ErrorContains(t, err, c.want, name)
			assert.Equal(t, errkind.ValueError, errkind.Of(err), name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, name == "bfloat16", bytes.Contains(m.Text, []byte("bf16")), name)
	}
	assert.Nil(t, (&trainer.Flags{}).Loss(nil))
}
