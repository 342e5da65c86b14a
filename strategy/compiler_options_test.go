package strategy_test

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
)

const fusions = "xla_cpu_experimental_ynn_fusion_type"

// sumAndMax computes a sum and a maximum over the rows of a table.
func sumAndMax(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
	return []*graph.Node{graph.ReduceSum(in[0], 0), graph.ReduceMax(in[0], 0)}
}

// The compiler uses the options: sums are faster, and maxima still propagate NaN.
func TestCompilerOptionsReachTheCompiler(t *testing.T) {
	table := make([][]float32, 1024)
	for i := range table {
		table[i] = make([]float32, 64)
		table[i][0], table[i][1] = 1, float32(i)
	}
	table[7][2] = float32(math.NaN())
	library := func(options map[string]any) bool {
		s := strategytest.New(t, 1, 1, strategy.Options{CompilerOptions: options})
		options["xla_no_such_option"] = true // the strategy has its own copy of the map
		f := s.Function(sumAndMax, strategy.FunctionOptions{Name: "rows"})
		results, err := f.Run(context.Background(), table)
		require.NoError(t, err)
		sums := strategytest.Values(t, results[0], 1)[0].([]float32)
		highest := strategytest.Values(t, results[1], 1)[0].([]float32)
		assert.Equal(t, []float32{1024, 1023 * 512}, sums[:2])
		assert.Equal(t, float32(1023), highest[1])
		assert.True(t, math.IsNaN(float64(highest[2])), "a maximum of %v has dropped NaN", highest)
		x, err := f.Compiled(context.Background(), table)
		require.NoError(t, err)
		program, err := x.Program.OptimizedProgram()
		require.NoError(t, err)
		return bytes.Contains(program.Code, []byte("__ynn_fusion"))
	}
	assert.False(t, library(map[string]any{}))
	assert.True(t, library(map[string]any{fusions: "LIBRARY_FUSION_TYPE_REDUCE"}))
}

func TestCompilerOptionsThatAreNotRight(t *testing.T) {
	sys := plugintest.System(t, 1)
	for name, options := range map[string]map[string]any{
		"a type":    {"xla_dump_to": []string{"x"}},
		"no name":   {"": true},
		"a crasher": {"xla_cpu_parallel_codegen_split_count": -1},
		// The compiler converts strings to numbers.
		"a crasher as a text": {"xla_cpu_parallel_codegen_split_count": "-1"},
		// Each part is a copy of the program. The compilation would use 13 GB, and this process
		// cannot stop it.
		"too many parts":           {"xla_cpu_parallel_codegen_split_count": 1 << 20},
		"too many parts as a text": {"xla_cpu_parallel_codegen_split_count": " 1048576"},
		"no number of parts":       {"xla_cpu_parallel_codegen_split_count": "many"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := strategy.New(sys, strategy.Options{CompilerOptions: options})
			var wrong *strategy.OptionError
			require.ErrorAs(t, err, &wrong)
			assert.Equal(t, "CompilerOptions", wrong.Option)
		})
	}
	for name, options := range map[string]map[string]any{
		"an unknown option": {"xla_no_such_option": true},
		"an unknown value":  {fusions: "REDUCE"},
	} {
		t.Run(name, func(t *testing.T) {
			s := strategytest.On(t, sys, strategy.Options{CompilerOptions: options})
			_, err := s.Function(sumAndMax, strategy.FunctionOptions{Name: "rows"}).Run(context.Background(), [][]float32{{1}})
			require.ErrorIs(t, err, pjrt.InvalidArgument)
			for option := range options {
				assert.ErrorContains(t, err, option)
			}
		})
	}
}
