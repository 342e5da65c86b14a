package gomlx

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type counted struct {
	closed int
	err    error
}

func (c *counted) Close() error { c.closed++; return c.err }

func TestEachIsFreedOnceAndNothingAfterTheEnd(t *testing.T) {
	s := newResources()
	early, z, a := &counted{}, &counted{err: errors.New("z")}, &counted{err: errors.New("a")}
	for _, r := range []*counted{early, z, a} {
		require.NoError(t, s.Track(r))
	}
	require.NoError(t, s.Free(early))
	require.NoError(t, s.Free(early))
	assert.Equal(t, 2, s.Len())
	require.NoError(t, s.Check())

	calls := 0
	end := func(errs []error) error { calls++; return errors.Join(errs...) }
	require.EqualError(t, s.Close(end), "a\nz")
	require.EqualError(t, s.Close(end), "a\nz")
	assert.Equal(t, 1, calls)
	require.NoError(t, s.Free(z))
	late := &counted{}
	require.ErrorIs(t, s.Track(late), ErrFinalized)
	require.ErrorIs(t, s.Check(), ErrFinalized)
	for _, r := range []*counted{early, z, a, late} {
		assert.Equal(t, 1, r.closed)
	}
}
