package cache_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
)

func TestIdentityContainsBuild(t *testing.T) {
	client := plugintest.CPU(t, 1)
	one, err := client.Identity()
	require.NoError(t, err)
	two, err := plugintest.CPU(t, 4).Identity()
	require.NoError(t, err)
	assert.Equal(t, one, two)
	assert.Contains(t, one, "cpu; PJRT 0.")
	assert.Regexp(t, `build (sampled:)?[0-9a-f]{16,}`, one)
}

func TestIdentityIsReadOncePerClient(t *testing.T) {
	c := open(t, t.TempDir(), cache.Options{})
	for _, devices := range []int{1, 4} {
		client := plugintest.CPU(t, devices)
		want, err := client.Identity()
		require.NoError(t, err)
		for range 2 {
			got, err := cache.IdentityOf(c, client)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
		assert.Less(t, testing.AllocsPerRun(5, func() { _, _ = cache.IdentityOf(c, client) }), 5.0,
			"the library is not read again")
	}
}
