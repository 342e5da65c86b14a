package safetensors

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pieces writes a tensor in several writes of n bytes.
func pieces(sizes ...int) func(Info, io.Writer) error {
	return func(_ Info, w io.Writer) error {
		for _, n := range sizes {
			if _, err := w.Write(make([]byte, n)); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestWriteErrors(t *testing.T) {
	tensors := []Spec{{"", U8, []int{2}}, {"b", U8, []int{2}}, {"none", U8, []int{0}}}
	require.NoError(t, Write(io.Discard, tensors, nil, pieces(2)))
	require.NoError(t, Write(io.Discard, tensors, nil, pieces(1, 0, 1)))
	assert.ErrorIs(t, Write(io.Discard, tensors, nil, pieces(1)), ErrFormat, "too short")
	assert.ErrorIs(t, Write(io.Discard, tensors, nil, pieces(1, 2)), ErrFormat, "too long")

	for name, bad := range map[string][]Spec{
		"twice":    {{"a", U8, nil}, {"a", U8, nil}},
		"reserved": {{"__metadata__", U8, nil}},
		"dtype":    {{"a", "X", nil}},
		"negative": {{"a", U8, []int{-1}}},
		"too much": {{"a", U64, []int{math.MaxInt64}}},
		"sum":      {{"a", U8, []int{math.MaxInt64}}, {"b", U8, []int{math.MaxInt64}}},
		"no text":  {{"\xff", U8, nil}},
	} {
		assert.ErrorIs(t, Write(io.Discard, bad, nil, pieces()), ErrFormat, name)
	}
	assert.ErrorIs(t, Write(io.Discard, nil, map[string]string{"a": "\xff"}, nil), ErrFormat)
	assert.ErrorIs(t, Write(io.Discard, nil, map[string]string{"a": strings.Repeat("x", MaxHeaderBytes)}, nil),
		ErrFormat)
}

type failing struct{ after int }

var errDisk = errors.New("disk full")

func (f *failing) Write(p []byte) (int, error) {
	if f.after--; f.after < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

func TestWriteReturnsErrorOfWriter(t *testing.T) {
	for after := range 2 {
		assert.ErrorIs(t, Write(&failing{after: after}, []Spec{{"a", U8, []int{2}}}, nil, pieces(1, 1)), errDisk)
	}
}

func TestWriteFileIsAtomic(t *testing.T) {
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
	one := []Spec{{"a", U8, []int{2}}}
	assert.ErrorIs(t, WriteFile(path, one, nil, pieces(1)), ErrFormat, "one byte lacks")
	broken := &fs.PathError{Op: "read", Path: "elsewhere", Err: errDisk}
	assert.ErrorIs(t, WriteFile(path, one, nil, func(Info, io.Writer) error { return broken }), broken)
	assert.Equal(t, []string{"x.safetensors"}, names())
	old, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old", string(old))

	require.NoError(t, WriteFile(path, one, nil, pieces(1, 1)))
	assert.Equal(t, []string{"x.safetensors"}, names())
	back, err := load(path)
	require.NoError(t, err)
	assert.Equal(t, []byte{0, 0}, read(t, back, "a"))

	assert.ErrorIs(t, WriteFile(filepath.Join(dir, "absent", "x"), nil, nil, pieces()), os.ErrNotExist)
	assert.ErrorIs(t, WriteFile(path, []Spec{{"a", "X", nil}}, nil, pieces()), ErrFormat)
	assert.Equal(t, []string{"x.safetensors"}, names(), "no temporary file stays")
}
