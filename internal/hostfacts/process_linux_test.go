package hostfacts_test

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
)

func TestReadProcess(t *testing.T) {
	assert.NotEmpty(t, hostfacts.BootID())
	own, err := hostfacts.ReadProcess(os.Getpid())
	require.NoError(t, err)
	assert.Contains(t, "RSD", string(own.State))
	first, err := hostfacts.ReadProcess(1)
	require.NoError(t, err)
	assert.Less(t, first.StartTicks, own.StartTicks)
	_, err = hostfacts.ReadProcess(1 << 30)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}
