package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

func init() { plugintest.PlainCode() }

// classified runs the command and returns its last line.
func classified(t *testing.T, args ...string) (c trainer.ClassifierResult, err error) {
	var stdout bytes.Buffer
	own := os.Getenv("XDG_CACHE_HOME")
	plugin := plugintest.Path(t, "cpu")
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // each run is on a machine of its own
	err = run(t.Context(), append(args, "-plugin", plugin), &stdout, io.Discard)
	t.Setenv("XDG_CACHE_HOME", own)
	if stdout.Len() > 0 {
		lines := bytes.Split(bytes.TrimSpace(stdout.Bytes()), []byte("\n"))
		require.NoError(t, json.Unmarshal(lines[len(lines)-1], &c))
	}
	return c, err
}

// TestAClassifierLearnsAndGoesOn: over 8 replicas, and on from its checkpoint over 2 of 4 logical
// devices; 64 rows do not divide the images of the test. What it writes goes below a URL.
func TestAClassifierLearnsAndGoesOn(t *testing.T) {
	dir := t.TempDir()
	out := "file://" + dir
	first, err := classified(t, "-steps", "60", "-out", out, "-profile", "10-12", "-cache", out+"/programs")
	require.NoError(t, err)
	require.NotNil(t, first.Accuracy)
	assert.Greater(t, *first.Accuracy, 0.8)
	assert.Equal(t, int64(60), first.Steps)
	for _, name := range []string{"losses.csv", "curve.html", "checkpoints", "best", "status",
		"programs/compile-cache.key", "profile/plugins/profile/steps_10-12"} {
		_, err := os.Stat(filepath.Join(dir, name))
		assert.NoError(t, err)
	}
	programs := func() int {
		entries, err := os.ReadDir(filepath.Join(dir, "programs"))
		require.NoError(t, err)
		return len(entries)
	}
	kept := programs()
	_, err = classified(t, "-steps", "1", "-cache", out+"/programs")
	require.NoError(t, err)
	assert.Equal(t, kept, programs(), "another machine compiles nothing")
	second, err := classified(t, "-steps", "90", "-out", out, "-resume", "-replicas", "2", "-logical", "4")
	require.NoError(t, err)
	assert.Equal(t, int64(90), second.Steps)
	assert.Less(t, *second.TestLoss, *first.TestLoss)
	table, err := os.ReadFile(filepath.Join(dir, "losses.csv"))
	require.NoError(t, err)
	rows := strings.Split(string(table), "\r\n")
	assert.Contains(t, rows[0], "test/accuracy")
	assert.True(t, strings.HasPrefix(rows[1], "1,1,"), "the rows of the first life are there: %s", rows[1])
	assert.True(t, slices.ContainsFunc(rows, func(r string) bool { return strings.HasPrefix(r, "90,") }))
}

func TestAFolderWithoutImagesIsNamed(t *testing.T) {
	dir := t.TempDir()
	_, err := classified(t, "-data", dir)
	assert.ErrorContains(t, err, "train-images-idx3-ubyte")
	assert.ErrorIs(t, err, os.ErrNotExist)
}
