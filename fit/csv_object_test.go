package fit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestATableInAStoreIsPutWithCheckpoints checks that a table in a store is put with each
// checkpoint, and that each checkpoint contains the rows that the store does not have.
func TestATableInAStoreIsPutWithCheckpoints(t *testing.T) {
	dir := t.TempDir()
	url, path := "file://"+filepath.Join(dir, "run")+"/losses.csv", filepath.Join(dir, "run", "losses.csv")
	f, err := begin(t, CSV(url), 0, nil)
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"step", "epoch", "loss"}}, contents(t, path))
	require.NoError(t, f.at(1, loss(1)))
	require.NoError(t, f.at(2, loss(2), Metric{"late", 3}))
	save := func(ofRun bool) []byte {
		f.s.runner.isMainSave = ofRun
		saved, err := f.h.Save()
		require.NoError(t, err)
		return saved
	}
	near := save(false)
	assert.Len(t, contents(t, path), 1, "a checkpoint on the hosts does not put the table")
	assert.Nil(t, save(true))
	want := [][]string{{"step", "epoch", "loss", "late"}, {"1", "1", "1", ""}, {"2", "1", "2", "3"}}
	assert.Equal(t, want, contents(t, path))
	require.NoError(t, f.at(3, loss(4)))
	later := save(false)
	require.NoError(t, f.at(4, loss(5)))

	// The process is killed here. A resume adds the rows of the checkpoint that the object does not
	// have, and removes the rows of repeated steps.
	for name, c := range map[string]struct {
		step  int64
		saved []byte
		rows  int
	}{"of the last save": {3, later, 4}, "of an earlier one": {2, near, 3}, "of the first": {1, []byte("null"), 2}} {
		require.NoError(t, os.WriteFile(path, []byte("step,epoch,loss,late\r\n1,1,1,\r\n2,1,2,3\r\n"), 0o600))
		f, err := begin(t, CSV(url), c.step, c.saved)
		require.NoError(t, err, name)
		require.NoError(t, f.end())
		assert.Len(t, contents(t, path), c.rows, name)
		if c.rows == 4 {
			assert.Equal(t, append(want, []string{"3", "1", "4", ""}), contents(t, path))
		}
	}
	_, err = begin(t, CSV(url), 0, nil)
	assert.ErrorContains(t, err, "give a new file, or resume the run that wrote it")
}

// TestPutsOfALargeTableAreBounded checks that puts use at most a twentieth of the time.
func TestPutsOfALargeTableAreBounded(t *testing.T) {
	o := &tableObject{text: make([]byte, smallTableBytes), syncDuration: time.Hour, syncTime: time.Now()}
	assert.True(t, o.shouldSync())
	o.text = append(o.text, 0)
	assert.False(t, o.shouldSync())
	o.syncDuration = 0
	assert.True(t, o.shouldSync())
}

// TestAStoreThatTakesNoTableKeepsTheRows checks that the rows are kept in the checkpoints and that
// the run returns an error.
func TestAStoreThatTakesNoTableKeepsTheRows(t *testing.T) {
	dir := t.TempDir()
	f, err := begin(t, CSV("file://"+dir+"/losses.csv"), 0, nil)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	f.s.runner.isMainSave = true
	for step := range int64(3) {
		require.NoError(t, f.at(step+1, loss(1)))
		saved, err := f.h.Save()
		require.NoError(t, err)
		assert.Equal(t, int(step+1), strings.Count(string(saved), `"Step"`))
	}
	assert.Len(t, f.warnings, 1, "said once: %v", f.warnings)
	assert.ErrorIs(t, f.end(), ErrWrite)
}
