package report_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/report/published"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// compiled compiles a measurement's program like its recipe.
func compiled(t *testing.T, m published.Operation) pjrt.Program {
	t.Helper()
	slice, err := system.Describe(t.Context(), m.Slice, system.DescribeOptions{Plugin: plugintest.Libtpu(t)})
	require.NoError(t, err)
	defer slice.Close()
	var ids []int
	for _, task := range slice.Topology().DeviceIDs() {
		ids = append(ids, task...)
	}
	ids = ids[:m.Devices*slice.Info().Slices]
	program, err := slice.Compile(t.Context(), pjrt.Program{Code: []byte(m.Text), Trusted: true},
		pjrt.CompileOptions{Partitions: len(ids), DeviceAssignment: [][]int{ids}, SPMD: len(ids) > 1, Shardy: len(ids) > 1,
			Overrides: m.Options})
	require.NoError(t, err, m.Name)
	defer program.Close()
	optimized, err := program.OptimizedProgram()
	require.NoError(t, err)
	return optimized
}

func predict(t *testing.T, program pjrt.Program, target string) *cost.Estimate {
	p, err := hlo.Parse(program, nil)
	require.NoError(t, err)
	e, err := cost.Predict(p, target)
	require.NoError(t, err)
	return e
}

// hold predicts measurements, prints the table and compares each error with its bound.
func hold(t *testing.T, all []published.Operation) {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "operation\tslice\tpublished\tpredicted\terror\t")
	for _, m := range all {
		p := predict(t, compiled(t, m), m.Slice).Prediction
		off := p.Seconds/m.Seconds - 1
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%+.1f %%\t%s\n", m.Name, m.Slice, units.Seconds(m.Seconds),
			units.Seconds(p.Seconds), 100*off, m.Why)
		assert.LessOrEqual(t, math.Abs(off), m.Bound, "%s on %s", m.Name, m.Slice)
		assert.Empty(t, p.Unknown, m.Name)
	}
	require.NoError(t, table.Flush())
	fmt.Print(b.String())
}

// One measurement of each class that compiles in seconds. TestAOTLargePublishedOperations tests the
// whole table.
func TestPredictionsAreNearPublishedOperations(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	var few []published.Operation
	for _, m := range published.Operations() {
		switch m.Name + " " + m.Slice {
		case "matmul 8192 v6e:1x1", "copy 32 MiB v6e:1x1", "copy 2 GiB tpu7x:1x1x1", "all-gather 16777216 tpu7x:2x2x1":
			few = append(few, m)
		}
	}
	require.Len(t, few, 4)
	hold(t, few)
}

func TestAOTLargePublishedOperations(t *testing.T) {
	plugintest.Large(t)
	if plugintest.TPUChild(t) {
		hold(t, published.Operations())
	}
}
