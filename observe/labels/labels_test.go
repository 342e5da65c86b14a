package labels_test

import (
	"bytes"
	"context"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/observe/labels"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// profile returns the entry of this goroutine in the profile of all goroutines, with its labels.
func profile(t *testing.T) string {
	var out bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&out, 1))
	for part := range strings.SplitSeq(out.String(), "\n\n") {
		if strings.Contains(part, "labels_test.profile") {
			return part
		}
	}
	t.Fatal("this goroutine is not in the profile")
	return ""
}

func TestTheStepsOfARunAreLabelled(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(layers.Dense(rc.Scope("dense"), in[0], true, 1))
		}, train.Options{}))
	batches := fit.Batches(func(yield func([]any, error) bool) {
		for yield([]any{[][]float32{{1, 2}, {3, 4}}}, nil) {
		}
	})
	during := ""
	_, err := fit.Run(t.Context(), step, batches, fit.Options{Steps: 2}, labels.Hook("run", "a"),
		fit.Each(2, func(context.Context, *fit.State) error {
			during = profile(t)
			return nil
		}))
	require.NoError(t, err)
	assert.Contains(t, during, `"run":"a"`)
	assert.Contains(t, during, `"tpustrategy_process":"0"`)
	assert.NotContains(t, profile(t), `"tpustrategy_process"`)

	_, err = fit.Run(t.Context(), step, batches, fit.Options{Steps: 2}, labels.Hook("run"))
	require.ErrorContains(t, err, "a key without a value")
	assert.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
}
