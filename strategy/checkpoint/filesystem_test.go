package checkpoint

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFolderWithAStepsNameAloneBlocksNothing(t *testing.T) {
	ctx := context.Background()
	d := newDirectory(t, Options{Keep: 1})
	for _, step := range []int64{2, math.MaxInt64} {
		require.NoError(t, os.Mkdir(filepath.Join(d.Path(), stepName(step)), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(d.Path(), stepName(math.MaxInt64), "other"), nil, 0o644))
	for step := int64(1); step < 4; step++ {
		require.NoError(t, d.Save(ctx, step, numbers(float32(step)), SaveOptions{}), "step %d", step)
		requireNumbers(t, latest(t, d), float32(step))
	}
	require.Equal(t, []string{lockFile, "step-0000000003", "step-9223372036854775807"}, names(t, d.Path()))
}
