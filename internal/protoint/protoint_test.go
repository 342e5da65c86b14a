package protoint

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIntsPackedAndUnpacked(t *testing.T) {
	values, err := Field{Value: 7}.AppendInts(nil)
	require.NoError(t, err)
	for f, err := range Fields(AppendInts(nil, 1, []int{1, -2, 300})) {
		require.NoError(t, err)
		values, err = f.AppendInts(values)
		require.NoError(t, err)
	}
	assert.Equal(t, []int{7, 1, -2, 300}, values)
	assert.Empty(t, AppendInts(nil, 1, nil))
}

func TestMalformedFields(t *testing.T) {
	_, err := Field{Bytes: []byte{}}.Int()
	assert.ErrorContains(t, err, "instead of a varint")
	_, err = Field{Value: 1 << 40}.Int()
	assert.ErrorContains(t, err, "out of range")
	_, err = Field{Value: 1 << 40}.AppendInts(nil)
	assert.ErrorContains(t, err, "out of range")
	_, err = Field{Bytes: []byte{0x80}}.AppendInts(nil)
	assert.Error(t, err)
}
