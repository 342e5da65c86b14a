package safetensors

import (
	"bytes"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadAt(t *testing.T) {
	file := write(t, []Spec{{"x", U8, []int{10}}, {"y", U16, []int{1}}}, nil,
		map[string][]byte{"x": []byte("0123456789"), "y": {1, 2}})
	f, err := New(&counting{r: bytes.NewReader(file)}, int64(len(file)))
	require.NoError(t, err)
	before := f.src.(*counting).bytes
	p := make([]byte, 3)
	require.NoError(t, f.ReadAt("x", p, 4))
	assert.Equal(t, "456", string(p))
	assert.Equal(t, before+3, f.src.(*counting).bytes)
	require.NoError(t, f.ReadAt("x", nil, 10))
	for _, at := range []int64{-1, 8, 11, math.MaxInt64} {
		assert.ErrorIs(t, f.ReadAt("x", p, at), ErrFormat, "%d", at)
	}
	assert.ErrorIs(t, f.ReadAt("absent", p, 0), ErrFormat)
}

type counting struct {
	r     io.ReaderAt
	bytes int
}

func (c *counting) ReadAt(p []byte, at int64) (int, error) {
	c.bytes += len(p)
	return c.r.ReadAt(p, at)
}
