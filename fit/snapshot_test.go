package fit

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// A forged position has the largest possible step. The first step whose record is still to come
// would overflow, and the complete table would be removed.
func TestAForgedPositionIsRefused(t *testing.T) {
	text := func(step int64, more string) map[string]string {
		return map[string]string{snapshotKey: fmt.Sprintf(`{"version":1,"step":%d,"position":{}%s}`, step, more)}
	}
	_, err := parseSavedState(text(7, ""))
	require.NoError(t, err)
	_, err = parseSavedState(text(1<<53, ""))
	require.NoError(t, err)
	for _, wrong := range []map[string]string{text(math.MaxInt64, ""), text(1<<53+1, ""), text(-1, ""),
		text(7, `,"position":{"pass":9223372036854775807}`), text(7, `,"position":{"taken":9223372036854775807}`)} {
		_, err := parseSavedState(wrong)
		assert.ErrorContains(t, err, "position", wrong)
		assert.Equal(t, errkind.DataLossError, errkind.KindOf(err), wrong)
	}
}

// A table keeps its rows of earlier steps, whatever the forged step is.
func TestATableKeepsItsRowsAtTheLastStep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "losses.csv")
	const rows = "step,epoch,loss\r\n1,1,0.5\r\n2,1,0.4\r\n"
	require.NoError(t, os.WriteFile(path, []byte(rows), 0o644))
	_, err := begin(t, CSV(path), math.MaxInt64, nil)
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, rows, string(data))
}
