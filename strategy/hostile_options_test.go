package strategy_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestEnumerationsThatAreNoneAreRefusedWhereTheyAreGiven(t *testing.T) {
	sys := plugintest.System(t, 1)
	for _, opts := range []strategy.Options{{Precision: 99}, {Precision: -1}, {Precision: lowering.PrecisionHighest + 1},
		{Semantics: 99}, {Semantics: -1}, {Semantics: strategy.TensorFlowMirrored + 1},
		{Variables: strategytest.Share(99, 0)}, {Variables: strategytest.Share(-1, 0)}} {
		_, err := strategy.New(sys, opts)
		var wrong *strategy.OptionError
		require.ErrorAs(t, err, &wrong, "%+v", opts)
		option := "Variables"
		switch {
		case opts.Precision != 0:
			option = "Precision"
		case opts.Semantics != 0:
			option = "Semantics"
		}
		assert.Equal(t, option, wrong.Option)
	}
}

func TestAPaddingThatIsNoneIsRefused(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	step := func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in }
	for _, padding := range []strategy.Padding{-1, strategy.KeepPadding + 1} {
		_, err := s.Function(step, strategy.FunctionOptions{Padding: padding}).Run(t.Context(), float32(1))
		require.ErrorContains(t, err, fmt.Sprintf("FunctionOptions.Padding is Padding(%d); use NoPadding", padding))
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
	assert.Equal(t, "NoPadding MaskPadding KeepPadding", fmt.Sprint(strategy.NoPadding, " ", strategy.MaskPadding, " ",
		strategy.KeepPadding))
}
