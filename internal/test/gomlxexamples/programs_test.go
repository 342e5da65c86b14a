package gomlxexamples

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// TestProgramsGiveTheNumbersOfOneDevice builds and runs each program on each kind of device. It is
// skipped unless TPUSTRATEGY_GOMLX_EXAMPLES is set to the output file of the table. If
// TPUSTRATEGY_EXAMPLES_DIR is set, passed programs are recorded in this folder, and the table is
// written after all programs have passed.
func TestProgramsGiveTheNumbersOfOneDevice(t *testing.T) {
	table := os.Getenv("TPUSTRATEGY_GOMLX_EXAMPLES")
	if table == "" {
		t.Skip("make test-gomlx-examples runs it")
	}
	dir := os.Getenv("TPUSTRATEGY_EXAMPLES_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	dir, err := filepath.Abs(dir)
	require.NoError(t, err)
	b, err := build(t.Context(), dir, programs)
	require.NoError(t, err)
	columns := []devices{
		{name: "1", backend: "tpustrategy:devices=1"},
		{name: "8 x 1", backend: "tpustrategy:devices=8,explain=1", splits: true},
		{name: "4 x 2", backend: "tpustrategy:devices=8,logical=2,rules=megatron+fsdp,explain=1", splits: true},
		{name: "upstream's XLA", backend: "xla:" + plugintest.Path(t, "cpu")},
	}
	for _, p := range programs {
		t.Run(p.folder(), func(t *testing.T) {
			r := measured(t, b, p, columns)
			if !t.Failed() {
				require.NoError(t, b.keep(r))
			}
		})
	}
	rows, err := b.kept(programs)
	require.NoError(t, err)
	t.Logf("%d of %d programs passed", len(rows), len(programs))
	if len(rows) == len(programs) && !t.Failed() {
		require.NoError(t, os.WriteFile(table, []byte(page(b.versions, columns, rows)), 0o644))
	}
}

// measured runs a program on all devices and compares the results with the first device.
func measured(t *testing.T, b *built, p program, columns []devices) row {
	out := row{program: p}
	var first, second *run
	for i, on := range columns {
		dir := filepath.Join(b.dir, "runs", filepath.Base(b.binary(p)), p.folder(), on.folder())
		require.NoError(t, os.RemoveAll(dir))
		r, err := b.run(t.Context(), p, on, dir, "first", p.steps)
		if !assert.NoError(t, err) {
			continue
		}
		c := cell{Rate: r.rate(), Wall: r.wall}
		assert.Empty(t, p.expected(r), "%s", on.name)
		again := r
		if on.splits && p.steps > 0 {
			var data int
			data, c.Variables = r.split()
			assert.Positive(t, data, "%s: no data of the step are split", on.name)
		}
		if p.resumed != 0 && (i == 0 || on.splits) {
			again, err = b.run(t.Context(), p, on, dir, "second", p.again())
			require.NoError(t, err)
			assert.Empty(t, p.went(again), "%s", on.name)
		}
		if i == 0 {
			first, second = r, again
			if p.steps > 0 {
				out.From, out.To = r.losses[0], r.losses[len(r.losses)-1]
			}
		}
		require.NotNil(t, first, "the run on one device failed")
		if p.steps == 0 {
			assert.Equal(t, first.said(), r.said(), "%s", on.name)
		}
		limit := p.tolerance
		if limit == 0 {
			limit = usual
		}
		compare := func(what string, got, want []float64) {
			d, err := apart(got, want)
			assert.NoError(t, err, "%s: %s", on.name, what)
			assert.LessOrEqual(t, d, limit, "%s: %s", on.name, what)
			c.Apart = max(c.Apart, d)
		}
		compare("losses", r.losses, first.losses)
		if i == 0 || on.splits {
			compare("losses after the restart", again.losses, second.losses)
		}
		if p.plots {
			assert.Equal(t, first.points.names, r.points.names, "%s", on.name)
			compare("points of plots", r.points.values, first.points.values)
		}
		out.Cells = append(out.Cells, c)
		t.Logf("%s: %s: apart %.2g, %.0f steps/s, %.1fs", p.name, on.name, c.Apart, c.Rate, c.Wall.Seconds())
	}
	return out
}
