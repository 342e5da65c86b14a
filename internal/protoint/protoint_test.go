package protoint

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestIntsReadsBothFormsOfARepeatedField(t *testing.T) {
	var values []int
	plain := protowire.AppendVarint(nil, 7)
	n, err := Ints(plain, protowire.VarintType, &values)
	require.NoError(t, err)
	assert.Equal(t, len(plain), n)
	var packed []byte
	for _, v := range []int64{1, -2, 300} {
		packed = protowire.AppendVarint(packed, uint64(v))
	}
	field := protowire.AppendBytes(nil, packed)
	n, err = Ints(field, protowire.BytesType, &values)
	require.NoError(t, err)
	assert.Equal(t, len(field), n)
	assert.Equal(t, []int{7, 1, -2, 300}, values)
}

func TestDamagedFieldsAreErrors(t *testing.T) {
	var value int
	var values []int
	_, err := Int([]byte{1}, protowire.BytesType, &value)
	assert.ErrorContains(t, err, "instead of a varint")
	_, err = Int(protowire.AppendVarint(nil, 1<<40), protowire.VarintType, &value)
	assert.ErrorContains(t, err, "out of range")
	_, err = Int([]byte{0x80}, protowire.VarintType, &value)
	assert.Error(t, err)
	_, err = Ints([]byte{5, 1}, protowire.BytesType, &values)
	assert.Error(t, err)
	_, err = Ints(protowire.AppendBytes(nil, []byte{0x80}), protowire.BytesType, &values)
	assert.Error(t, err)
	assert.Empty(t, values)
}
