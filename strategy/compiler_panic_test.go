package strategy_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// panicking is a compiler that panics.
type panicking struct{}

func (panicking) Compile(context.Context, *pjrt.Client, pjrt.Program, pjrt.CompileOptions) (*pjrt.LoadedExecutable,
	error) {
	panic("a mistake")
}

func TestACompilersPanicIsAnError(t *testing.T) {
	s := strategytest.New(t, 2, 1, strategy.Options{Compiler: panicking{}})
	for range 2 {
		_, err := s.Function(double, strategy.FunctionOptions{}).Run(context.Background(), float32(1))
		require.ErrorContains(t, err, "panic: a mistake")
	}
}
