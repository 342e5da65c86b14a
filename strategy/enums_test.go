package strategy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func FuzzParseReduceOp(f *testing.F) {
	for _, name := range []string{"sum", "MEAN", "Mean", "max", "", "SUM "} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		op, err := strategy.ParseReduceOp(name)
		if err != nil {
			require.Equal(t, errkind.ValueError, errkind.KindOf(err))
			return
		}
		require.Equal(t, strings.ToUpper(name), op.String())
	})
}
