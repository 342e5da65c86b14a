package text

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

func TestEachByteIsAToken(t *testing.T) {
	text := make([]byte, 512)
	for i := range text {
		text[i] = byte(i)
	}
	ids := Bytes().Append(nil, text)
	for i, id := range ids {
		require.EqualValues(t, byte(i), id)
	}
	back, err := Bytes().AppendText([]byte("begin "), ids)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(append([]byte("begin "), text...), back))

	for _, id := range []int32{-1, 256} {
		_, err := Bytes().AppendText(nil, []int32{1, 2, id})
		assert.ErrorContains(t, err, fmt.Sprintf("number 2 is %d; give tokens of this tokenizer, 0 to 255", id))
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}
