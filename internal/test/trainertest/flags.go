package trainertest

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

	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// CheckFlags checks the lowered training step of a classifier of 8 x 8 images. With -precision bf16,
// the step must contain bfloat16 products. With -remat full, its backward pass must repeat products.
// logits computes the logits of images, a uint8 tensor of shape [rows, 8, 8].
func CheckFlags(t *testing.T, logits func(f *trainer.Flags, rc *strategy.ReplicaContext,
	images *graph.Node) *graph.Node) {
	s := strategytest.New(t, 2, 1)
	text := func(args ...string) string {
		f := trainer.AddFlags(flag.NewFlagSet(t.Name(), flag.ContinueOnError), trainer.Defaults{Steps: 1, Devices: 2})
		require.NoError(t, f.Parse(args, io.Discard))
		step := strategytest.OK(train.New(s, f.NewStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
			in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(precision.Output(logits(f, rc, in[0])))
		}, train.Options{Precision: f.Precision}))
		m, err := step.Lowered(t.Context(), shapes.Make(dtypes.Uint8, 4, 8, 8))
		require.NoError(t, err)
		return string(m.Text)
	}
	plain := text()
	require.Positive(t, products(plain, "f32"))
	assert.Zero(t, products(plain, "bf16"))
	assert.Positive(t, products(text("-precision", "bf16"), "bf16"))
	assert.Greater(t, products(text("-remat", "full"), "f32"), products(plain, "f32"))
}

var product = regexp.MustCompile(`(?s)(dot_general|convolution)"?\(.*?-> tensor<([^>]*)>`)

// products returns the number of matrix products and convolutions whose result has the given dtype.
func products(text, dtype string) (n int) {
	for _, op := range product.FindAllStringSubmatch(text, -1) {
		if strings.HasSuffix(op[2], "x"+dtype) {
			n++
		}
	}
	return n
}
