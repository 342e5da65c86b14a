package perceptron_test

import (
	"flag"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/examples/digits/perceptron"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/trainer"
)

// With -precision bf16 the products are bfloat16, and with -remat full the backward pass computes again.
func TestTheFlagsOfTheComputationTakeEffect(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	text := func(args ...string) string {
		f := trainer.AddFlags(flag.NewFlagSet("digits", flag.ContinueOnError), trainer.Defaults{Steps: 1, Devices: 2})
		require.NoError(t, f.Parse(args, io.Discard))
		c := strategytest.OK(perceptron.New("", f))
		step := strategytest.OK(train.New(s, f.Store(), optimizer.Adam().Done(), f.Loss(func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(precision.Output(c.Logits(rc, in[0])))
		}), train.Options{Precision: f.Precision}))
		m, err := step.Lowered(t.Context(), shapes.Make(dtypes.Uint8, 4, 8, 8))
		require.NoError(t, err)
		return string(m.Text)
	}
	products := func(text, dtype string) int {
		n := 0
		for _, op := range regexp.MustCompile(`(?s)(dot_general|convolution)"?\(.*?-> tensor<([^>]*)>`).FindAllStringSubmatch(text, -1) {
			if strings.HasSuffix(op[2], "x"+dtype) {
				n++
			}
		}
		return n
	}
	plain := text()
	require.Positive(t, products(plain, "f32"))
	assert.Zero(t, products(plain, "bf16"))
	assert.Positive(t, products(text("-precision", "bf16"), "bf16"))
	assert.Greater(t, products(text("-remat", "full"), "f32"), products(plain, "f32"))
}
