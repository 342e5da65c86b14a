package fit

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

func TestTheCurveOfAResumedRunIsThatOfTheWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "curve.html")
	whole, err := begin(t, Curve(path), 0, nil)
	require.NoError(t, err)
	for step := range int64(30) {
		require.NoError(t, whole.at(step+1, loss(1/float64(step+1)), Metric{"rate", 5}))
	}
	require.NoError(t, whole.end())
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(want), "data-line="), "only losses, if none are named")

	// The run was killed after step 20 and resumed from the checkpoint of step 15.
	part, err := begin(t, Curve(path), 0, nil)
	require.NoError(t, err)
	var saved []byte
	for step := range int64(20) {
		require.NoError(t, part.at(step+1, loss(1/float64(step+1)), Metric{"rate", 5}))
		if step+1 == 15 {
			saved, err = part.h.Save()
			require.NoError(t, err)
		}
	}
	part, err = begin(t, Curve(path), 15, saved)
	require.NoError(t, err)
	for step := int64(15); step < 30; step++ {
		require.NoError(t, part.at(step+1, loss(1/float64(step+1)), Metric{"rate", 5}))
	}
	require.NoError(t, part.end())
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

func TestACurveStaysSmall(t *testing.T) {
	h := Curve(filepath.Join(t.TempDir(), "curve.html"), Loss)
	f, err := begin(t, h, 0, nil)
	require.NoError(t, err)
	for step := range int64(9000) {
		require.NoError(t, f.at(step+1, loss(float64(step))))
	}
	saved, err := h.Save()
	require.NoError(t, err)
	assert.Less(t, len(saved), 100_000)
	require.NoError(t, h.Load(saved))
	require.NoError(t, f.end())
}

func TestCurvesThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"curve.gif", "curve"} {
		require.Equal(t, errkind.ValueError, errkind.KindOf(Curve(path).err))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.html"), 0o755))
	_, err := begin(t, Curve(filepath.Join(dir, "folder.html")), 0, nil)
	require.ErrorContains(t, err, "a directory")
	_, err = begin(t, Curve(filepath.Join(dir, "none", "curve.html")), 0, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)

	// NaN losses are a warning, not an error.
	f, err := begin(t, Curve(filepath.Join(dir, "curve.html")), 0, nil)
	require.NoError(t, err)
	require.NoError(t, f.at(1, loss(math.NaN())))
	require.NoError(t, f.end())
	assert.NotEmpty(t, f.warnings)

	// A removed folder is an error.
	gone := filepath.Join(dir, "gone")
	require.NoError(t, os.Mkdir(gone, 0o755))
	f, err = begin(t, Curve(filepath.Join(gone, "curve.html")), 0, nil)
	require.NoError(t, err)
	require.NoError(t, f.at(1, loss(1)))
	require.NoError(t, os.RemoveAll(gone))
	require.ErrorIs(t, f.end(), ErrWrite)
}
