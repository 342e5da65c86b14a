package hlo

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBytesOfShapes(t *testing.T) {
	for want, shape := range map[int64][]byte{
		0: nil, 128: floats(8, 4), 4: floats(), 12: packed(number(nil, 2, 16), 3, 6), 3: packed(number(nil, 2, 21), 3, 5),
		132: message(message(nil, 4, floats(8, 4)), 4, floats()),
	} {
		s, err := parseShape(shape, 0)
		require.NoError(t, err)
		assert.Equal(t, want, s.bytes())
	}
	huge, err := parseShape(floats(1<<40, 1<<40, 1<<40), 0)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, huge.bytes(), int64(0))
}
