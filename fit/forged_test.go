package fit_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// TestAResumePassesOverForgedMetadata forges metadata that no run can have saved with its step. The
// checksums of the checkpoint are right.
func TestAResumePassesOverForgedMetadata(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	run := func(steps int64) (fit.Result, string, error) {
		var said bytes.Buffer
		result, err := fit.Run(t.Context(), dense(strategytest.New(t, 2, 1), 2), fit.Dataset(dataset(t, 8).Repeat(-1)),
			fit.Options{Steps: steps, Resume: true, Logger: slog.New(slog.NewTextHandler(&said, nil))}, fit.Checkpoint(dir, 0))
		return result, said.String(), err
	}
	_, _, err := run(3)
	require.NoError(t, err)
	const key = "tpustrategy.fit"
	steps := int64(3)
	for _, forged := range []string{`"step":9007199254740992`, `"step":0`, `"step":-1`, `"step":"4"`,
		`"step":99,"position":{"pass":0,"taken":98}`,
		`"step":1000,"position":{"pass":4503599627370496,"taken":1}`, `"step":1000,"position":{"taken":9007199254740992}`} {
		m, err := checkpoint.OpenManager(t.Context(), dir, checkpoint.ManagerOptions{})
		require.NoError(t, err)
		last, err := m.Latest(t.Context())
		require.NoError(t, err)
		require.Equal(t, steps, last.Step())
		text := `{"version":1,` + forged + "}"
		require.Contains(t, last.Metadata(), key)
		require.NoError(t, last.Close())
		require.NoError(t, m.Save(t.Context(), 1000, checkpoint.StoreGroup(strategytest.SeededStore()),
			checkpoint.SaveOptions{Metadata: map[string]string{key: text}}))
		require.NoError(t, m.Close())

		steps++
		result, said, err := run(steps)
		require.NoError(t, err, forged)
		assert.Equal(t, steps-1, result.ResumedFrom, forged)
		assert.Contains(t, said, "skipping a damaged checkpoint", forged)
		assert.Contains(t, said, "the position in the checkpoint's metadata", forged)
	}
}
