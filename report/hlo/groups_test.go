package hlo

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGroupsAreReadInEveryForm(t *testing.T) {
	iota := func(count, size uint64, reshape, perm []uint64) []byte {
		return packed(packed(number(number(nil, 1, count), 2, size), 3, reshape...), 4, perm...)
	}
	axis := func(size uint64) []byte { return message(nil, 1, number(message(nil, 1, []byte("a")), 2, size)) }
	mesh := func(refs [][]byte, axes ...[]byte) []byte {
		var m []byte
		for _, a := range axes {
			m = append(m, a...)
		}
		b := message(nil, 1, m)
		for _, r := range refs {
			b = message(b, 2, r)
		}
		return b
	}
	part := func(axis, pre, size uint64) []byte {
		return message(number(nil, 1, axis), 2, number(number(nil, 1, pre), 2, size))
	}
	for name, c := range map[string]struct {
		field []byte
		want  [][]int
	}{
		"one by one": {grouped([]uint64{0, 2}, []uint64{1, 3}), [][]int{{0, 2}, {1, 3}}},
		"the old field": {message(message(nil, 49, packed(nil, 1, 0, 1)), 49, packed(nil, 1, 2, 3)),
			[][]int{{0, 1}, {2, 3}}},
		"an iota":           {message(nil, 92, iota(2, 2, []uint64{4}, []uint64{0})), [][]int{{0, 1}, {2, 3}}},
		"a transposed iota": {message(nil, 92, iota(2, 2, []uint64{2, 2}, []uint64{1, 0})), [][]int{{0, 2}, {1, 3}}},
		"an iota in a list": {message(nil, 87, message(nil, 2, iota(1, 4, []uint64{4}, []uint64{0}))), [][]int{{0, 1, 2, 3}}},
		"three axes": {message(nil, 92, iota(4, 2, []uint64{2, 2, 2}, []uint64{0, 2, 1})), [][]int{{0, 2}, {1, 3},
			{4, 6}, {5, 7}}},
		"a mesh's axis": {message(nil, 93, mesh([][]byte{number(nil, 1, 0)}, axis(2), axis(2))), [][]int{{0, 2}, {1, 3}}},
		"both axes": {message(nil, 93, mesh([][]byte{nil, number(nil, 1, 1)}, axis(2), axis(2))),
			[][]int{{0, 1, 2, 3}}},
		"part of an axis": {message(nil, 93, mesh([][]byte{part(0, 1, 2)}, axis(4))), [][]int{{0, 2}, {1, 3}}},
		"the other part":  {message(nil, 93, mesh([][]byte{part(0, 2, 2)}, axis(4))), [][]int{{0, 1}, {2, 3}}},
	} {
		i, err := parseInstruction(op(1, "all-reduce", floats(1), nil, c.field))
		require.NoError(t, err, name)
		assert.Equal(t, c.want, i.Groups, name)
	}
	unordered := message(mesh([][]byte{nil}, axis(2)), 1, message(nil, 2, []byte{1, 0}))
	i, err := parseInstruction(op(1, "all-reduce", floats(1), nil, message(nil, 93, unordered)))
	require.NoError(t, err)
	assert.True(t, i.UnknownGroups)
}
