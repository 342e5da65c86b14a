package gomlx_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
)

// trainCached trains with a cache and returns the cache's counts.
func trainCached(t *testing.T, dir string) (losses []float64, stats cache.Stats) {
	kept, err := cache.Open(dir, cache.Options{SigningKeyFile: dir + ".key"})
	require.NoError(t, err)
	b, err := gomlx.New(plugintest.System(t, 4), gomlx.Options{LogicalDevices: 2, Compiler: kept})
	require.NoError(t, err)
	losses, err = trainWords(b, 16, 3)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	return losses, kept.Stats()
}

// A process that runs the same program again compiles nothing: names that GoMLX generates in each
// process are not part of the programs.
func TestASecondProcessLoadsWhatTheFirstCompiled(t *testing.T) {
	const where = "TPUSTRATEGY_TEST_CACHE"
	if dir := os.Getenv(where); dir != "" {
		_, stats := trainCached(t, dir)
		assert.Equal(t, cache.Stats{Hits: 2}, stats)
		return
	}
	dir := t.TempDir() + "/programs"
	_, stats := trainCached(t, dir)
	assert.Equal(t, cache.Stats{Misses: 2}, stats, "the variables' initialization, and the step")
	out, err := plugintest.Child(t, where+"="+dir)
	require.NoError(t, err, out)
}

func TestTheCacheOfAConfigString(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // where the key is
	dir := t.TempDir() + "/a,b"
	b, _ := fromConfig(t, `cache="`+dir+`"`, gomlx.Options{})
	_, err := trainWords(b, 4, 1)
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2)

	_, err = gomlx.NewFromConfig(t.Context(), "cache=/dev/null/x", gomlx.Options{})
	require.ErrorIs(t, err, gomlx.ErrConfig)
	assert.ErrorContains(t, err, ": option cache: ")
}
