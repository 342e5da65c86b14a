package protoint

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestInto(t *testing.T) {
	number := func(m []byte, n protowire.Number, x uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(m, n, protowire.VarintType), x)
	}
	text := func(m []byte, n protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(m, n, protowire.BytesType), b)
	}
	double := func(m []byte, n protowire.Number, x float64) []byte {
		return protowire.AppendFixed64(protowire.AppendTag(m, n, protowire.Fixed64Type), math.Float64bits(x))
	}
	m := number(text(number(nil, 1, 7), 2, []byte("name")), 3, math.MaxUint64)
	m = number(number(text(m, 5, []byte{1, 2}), 5, 3), 6, 1)
	m = text(double(double(m, 7, 0.5), 8, 1.5), 9, number(nil, 1, 4))
	m = protowire.AppendFixed32(protowire.AppendTag(m, 10, protowire.Fixed32Type), 9)
	m = text(m, 8, protowire.AppendFixed64(nil, math.Float64bits(2.5)))
	m = number(text(m, 1, []byte("another type")), 99, 1)

	var unsigned, inner, bits uint64
	var signed int64
	var name string
	var list []uint64
	var set bool
	var half float64
	var floats []float64
	require.NoError(t, Scanner{1: &unsigned, 2: &name, 3: &signed, 5: &list, 6: &set, 7: &half, 8: &floats,
		9: Scanner{1: &inner}, 10: func(x uint64) { bits = x }}.Read(m))
	assert.Equal(t, []any{uint64(7), "name", int64(-1), []uint64{1, 2, 3}, true, 0.5, []float64{1.5, 2.5}, uint64(4),
		uint64(9)},
		[]any{unsigned, name, signed, list, set, half, floats, inner, bits})

	failed := errors.New("failed")
	assert.ErrorIs(t, Scanner{2: func([]byte) error { return failed }}.Read(m), failed)
	for _, damaged := range [][]byte{append(m, 0xff), append(m, 1<<3|2, 100), text(nil, 4, []byte{0xff}),
		text(nil, 5, []byte{0xff})} {
		assert.Error(t, Scanner{4: Scanner{}, 5: &list}.Read(damaged))
	}
}
