//go:build unix

package checkpoint

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneProcessSavesAtATime(t *testing.T) {
	d := newDirectory(t, Options{})
	locked, err := lock(d.Path())
	require.NoError(t, err)
	require.ErrorIs(t, d.Save(context.Background(), 1, numbers(1), SaveOptions{}), ErrBusy)
	require.NoError(t, locked.Close())
	require.NoError(t, d.Save(context.Background(), 1, numbers(1), SaveOptions{}))
}
