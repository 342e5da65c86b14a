package transformer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
)

const mebibyte = 1 << 20

// compiled compiles a decoder's step for a slice and logs the values for the table of
// docs/large-models.md.
func compiled(t *testing.T, slice string, c transformer.Config, logicalDevices int) *report.Report {
	t.Helper()
	s := strategytest.Ahead(t, slice, c.Options(0, logicalDevices))
	var x *strategy.CompiledStep
	took := hangtest.Processor(t, func() {
		var err error
		x, err = c.Step(s, model.NewStore()).Compiled(t.Context(), c.TokensShape())
		require.NoError(t, err)
	})
	t.Logf("%.1f s of the processor", took.Seconds())
	r, err := report.Of(x)
	require.NoError(t, err)
	t.Log(line(c, r, len(x.Module.Text)))
	return r
}

// line returns a report as a few lines of text.
func line(c transformer.Config, r *report.Report, text int) string {
	var b strings.Builder
	mib := func(bytes int64) int64 { return (bytes + mebibyte/2) / mebibyte }
	fmt.Fprintf(&b, "%s as %d x %d, %.2f billion parameters, batch %d, loop %v, %v, %v: %d bytes of text, %.1f s to "+
		"lower, %.1f s to compile; MiB: arguments %d, temporaries %d, code %d, needs %d of %d (%s)\n",
		r.Target.Name, r.Replicas, r.LogicalDevices, float64(c.Parameters())/1e9, c.Batch, c.Loop, c.Keep, c.Shared, text,
		r.LoweringSeconds, r.CompilingSeconds,
		mib(r.Memory.Arguments), mib(r.Memory.Temporaries), mib(r.Memory.Code), mib(r.Memory.Needs), mib(r.Memory.Limit),
		r.Memory.Verdict)
	for _, d := range r.CollectiveDTypes {
		fmt.Fprintf(&b, "%s over %s of %s: %.3f GB\n", d.Kind, d.Axis, d.DType, float64(d.Bytes)/1e9)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(&b, note)
	}
	return b.String()
}

// TestAOTLargeBillion compiles a model with 1.3 billion parameters for v5e:4x4. Its memory limits
// are 5 percent above the values of the same model in JAX 0.10.2 with the same compiler; see
// docs/large-models.md.
func TestAOTLargeBillion(t *testing.T) {
	for _, form := range []struct {
		state                  logical.StateSharding
		arguments, temporaries float64 // MiB
	}{
		{logical.ShardNothing, 3883.4, 2435.3},
		{logical.ShardOptimizer, 1942.2, 2921.0},
		{logical.ShardParameters, 971.6, 1224.8},
	} {
		t.Run(form.state.String(), func(t *testing.T) {
			plugintest.Large(t)
			if !plugintest.TPUChild(t) {
				return
			}
			c := transformer.Billion()
			c.Loop, c.Keep, c.Shared = true, remat.Nothing(), strategytest.Share(form.state, 0)
			r := compiled(t, "v5e:4x4", c, 4)
			assert.Equal(t, report.Fits, r.Memory.Verdict)
			assert.LessOrEqual(t, float64(r.Memory.Arguments)/mebibyte, 1.05*form.arguments)
			assert.LessOrEqual(t, float64(r.Memory.Temporaries)/mebibyte, 1.05*form.temporaries)
			explained(t, r)
		})
	}
}

// TestAOTLargeLlama compiles Llama 3 with parameters, gradients and moments sharded over the
// replicas.
func TestAOTLargeLlama(t *testing.T) {
	for _, size := range []struct {
		name, slice    string
		config         transformer.Config
		logicalDevices int
		batch          int
	}{
		{"8B", "v5p-128", transformer.Llama8B(), 4, 32},
		{"70B", "v5p-512", transformer.Llama70B(), 8, 32},
	} {
		t.Run(size.name, func(t *testing.T) {
			plugintest.Large(t)
			if !plugintest.TPUChild(t) {
				return
			}
			c := size.config
			c.Batch, c.Loop, c.Keep, c.Shared = size.batch, true, remat.Nothing(), strategytest.Share(logical.ShardParameters, 0)
			r := compiled(t, size.slice, c, size.logicalDevices)
			assert.Equal(t, report.Fits, r.Memory.Verdict)
		})
	}
}
