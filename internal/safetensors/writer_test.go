package safetensors

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWriterRefusesWhatDoesNotFollowTheLayout(t *testing.T) {
	tensors := []Spec{{"", U8, []int64{2}}, {"b", U8, []int64{2}}, {"none", U8, []int64{0}}}
	w, err := NewWriter(io.Discard, tensors, nil)
	require.NoError(t, err)
	assert.ErrorIs(t, w.Finish(), ErrFormat)
	assert.ErrorIs(t, w.Write("b", []byte{1}), ErrFormat, "out of order")
	assert.ErrorIs(t, w.Write("", []byte{1, 2, 3}), ErrFormat, "too long")
	require.NoError(t, w.Write("", []byte{1}))
	require.NoError(t, w.Write("", []byte{2}))
	assert.ErrorIs(t, w.Finish(), ErrFormat)
	require.NoError(t, w.Write("b", []byte{1, 2}))
	assert.ErrorIs(t, w.Write("", nil), ErrFormat, "back again")
	require.NoError(t, w.Finish(), "the last one has no bytes")

	for name, bad := range map[string][]Spec{
		"twice":    {{"a", U8, nil}, {"a", U8, nil}},
		"reserved": {{"__metadata__", U8, nil}},
		"dtype":    {{"a", "X", nil}},
		"negative": {{"a", U8, []int64{-1}}},
		"too much": {{"a", U64, []int64{math.MaxInt64}}},
		"sum":      {{"a", U8, []int64{math.MaxInt64}}, {"b", U8, []int64{math.MaxInt64}}},
		"no text":  {{"\xff", U8, nil}},
	} {
		_, err := NewWriter(io.Discard, bad, nil)
		assert.ErrorIs(t, err, ErrFormat, name)
	}
	_, err = NewWriter(io.Discard, nil, map[string]string{"a": "\xff"})
	assert.ErrorIs(t, err, ErrFormat)
	_, err = NewWriter(io.Discard, nil, map[string]string{"a": strings.Repeat("x", MaxHeaderBytes)})
	assert.ErrorIs(t, err, ErrFormat)
}

type failing struct{ after int }

var errDisk = errors.New("disk full")

func (f *failing) Write(p []byte) (int, error) {
	if f.after--; f.after < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

func TestFailedWriteStays(t *testing.T) {
	w, err := NewWriter(&failing{after: 1}, []Spec{{"a", U8, []int64{2}}}, nil)
	require.NoError(t, err)
	assert.ErrorIs(t, w.Write("a", []byte{1}), errDisk)
	assert.ErrorIs(t, w.Write("a", []byte{1}), errDisk)
	assert.ErrorIs(t, w.Finish(), errDisk)
}

func TestFileAppearsCompleteOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	names := func() (out []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	f, err := Create(path, []Spec{{"a", U8, []int64{2}}}, nil)
	require.NoError(t, err)
	require.NoError(t, f.Write("a", []byte{1}))
	assert.ErrorIs(t, f.Commit(), ErrFormat, "one byte lacks")
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	assert.Error(t, f.Commit())
	assert.Equal(t, []string{"x.safetensors"}, names())
	old, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old", string(old))

	f, err = Create(path, []Spec{{"a", U8, []int64{2}}}, nil)
	require.NoError(t, err)
	require.NoError(t, f.Write("a", []byte{1, 2}))
	require.NoError(t, f.Commit())
	require.NoError(t, f.Close())
	assert.Equal(t, []string{"x.safetensors"}, names())
	back, err := Open(path)
	require.NoError(t, err)
	data, err := back.Read("a")
	require.NoError(t, err)
	assert.Equal(t, []byte{1, 2}, data)
	require.NoError(t, back.Close())
	require.NoError(t, back.Close())

	_, err = Create(filepath.Join(dir, "absent", "x"), nil, nil)
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Create(path, []Spec{{"a", "X", nil}}, nil)
	assert.ErrorIs(t, err, ErrFormat)
	assert.Equal(t, []string{"x.safetensors"}, names(), "no temporary file stays")
	_, err = Open(filepath.Join(dir, "absent"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}
