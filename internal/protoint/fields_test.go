package protoint

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestFieldsOfMalformedMessage(t *testing.T) {
	m := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	m = protowire.AppendFixed32(protowire.AppendTag(m, 2, protowire.Fixed32Type), 1)
	m = protowire.AppendBytes(protowire.AppendTag(m, 3, protowire.BytesType), []byte{5, 6})
	m = protowire.AppendBytes(protowire.AppendTag(m, 4, protowire.BytesType), nil)
	var got []Field
	var list []int64
	for f, err := range Fields(m) {
		require.NoError(t, err)
		got = append(got, f)
		list, err = AppendNumbers(list, f)
		require.NoError(t, err)
	}
	assert.Equal(t, []Field{{Number: 1, Value: 7}, {Number: 3, Bytes: []byte{5, 6}}, {Number: 4, Bytes: []byte{}}}, got)
	assert.Equal(t, []int64{7, 5, 6}, list)

	for _, damaged := range [][]byte{append(m, 0xff), append(m, 5<<3|2, 100)} {
		n := 0
		var last error
		for _, err := range Fields(damaged) {
			n, last = n+1, err
		}
		assert.Equal(t, len(got)+1, n)
		assert.Error(t, last)
	}
	_, err := AppendNumbers([]uint64(nil), Field{Bytes: []byte{0xff}})
	assert.Error(t, err)
}
