package strategy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestEnumerationsThatAreNoneAreRefusedWhereTheyAreGiven(t *testing.T) {
	sys := plugintest.System(t, 1)
	for _, opts := range []strategy.Options{{Precision: 99}, {Precision: -1}, {Precision: lowering.PrecisionHighest + 1},
		{Semantics: 99}, {Semantics: -1}, {Semantics: strategy.TensorFlowMirrored + 1}, {State: 99}, {State: -1}} {
		_, err := strategy.New(sys, opts)
		var wrong *strategy.OptionError
		require.ErrorAs(t, err, &wrong, "%+v", opts)
		option := "State"
		switch {
		case opts.Precision != 0:
			option = "Precision"
		case opts.Semantics != 0:
			option = "Semantics"
		}
		assert.Equal(t, option, wrong.Option)
	}
}
