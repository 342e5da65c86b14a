package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// TestPartsMakeTheTensor splits random tensors into shards and joins the shards again: split over
// the devices of a group, split over groups with padding, both, and replicated.
func TestPartsMakeTheTensor(t *testing.T) {
	group, err := sharding.NewMesh(sharding.Axis{Name: "a", Size: 2}, sharding.Axis{Name: "b", Size: 3})
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		const groups = 4
		shape := []int{6 * rng.IntN(3), 1 + rng.IntN(9), 6 * (1 + rng.IntN(2))}
		dims := make([]sharding.Dim, 3)
		for i, axes := range [][]string{{"a"}, nil, {"b"}} {
			if rng.IntN(2) == 0 {
				dims[i].Axes = axes
			}
		}
		l, err := NewLayout(pjrt.F32, shape, group, sharding.NewSpec(dims...))
		require.NoError(t, err)
		if rng.IntN(2) == 0 {
			l = l.SplitOverGroups(1, groups)
		}
		name := fmt.Sprint(shape, dims, l.IsSplitOverGroups())
		tensor := make([]byte, l.Bytes)
		for i := range tensor {
			tensor[i] = byte(1 + rng.IntN(255))
		}
		for g := range groups {
			if l.IsSplitOverGroups() && g > 0 {
				break // all groups have the same tensor
			}
			again, at := make([]byte, l.Bytes), []int{g}
			if l.IsSplitOverGroups() {
				at = []int{0, 1, 2, 3}
			}
			for _, g := range at {
				for d := g * group.Size(); d < (g+1)*group.Size(); d++ {
					scratch := bytes.Repeat([]byte{7}, 10)
					part := l.ExtractShard(tensor, d, &scratch)
					require.Len(t, part, l.ShardBytes, name)
					l.InsertShard(again, part, d)
					box := make([]byte, l.UnpaddedBytes(d))
					l.UnpadShard(box, part, d)
					padded := make([]byte, l.ShardBytes)
					l.PadShard(padded, box, d)
					assert.Equal(t, part, padded, name)
					if offset, ok := l.ContiguousOffset(d); ok {
						assert.Equal(t, tensor[offset:offset+l.ShardBytes], part, name)
					}
				}
			}
			require.Equal(t, tensor, again, name)
		}
	}
}

func TestAPartOfAScalar(t *testing.T) {
	l := NewReplicatedLayout(pjrt.S32, nil, 2).AsVector()
	var scratch []byte
	assert.Equal(t, []byte{1, 2, 3, 4}, l.ExtractShard([]byte{1, 2, 3, 4}, 1, &scratch))
	assert.Equal(t, []int{1}, l.Buffer)
	assert.Empty(t, l.Shape)
	tensor := make([]byte, 4)
	l.InsertShard(tensor, []byte{1, 2, 3, 4}, 1)
	assert.Equal(t, []byte{1, 2, 3, 4}, tensor)
}

// TestSources reads a tensor that is sharded over the devices of a group from the shards of one
// process.
func TestSources(t *testing.T) {
	group, err := sharding.NewMesh(sharding.Axis{Name: "a", Size: 2})
	require.NoError(t, err)
	split, err := NewLayout(pjrt.F32, []int{4}, group, sharding.P("a"))
	require.NoError(t, err)
	whole := NewReplicatedLayout(pjrt.F32, []int{4}, 2)
	// Groups 0 and 1 belong to process 0, and groups 2 and 3 to process 1.
	h, ok := NewProcesses([]int{5, 5, 5, 5, 9, 9, 9, 9}, 9, 2)
	require.True(t, ok)
	assert.Equal(t, []int{2, 3}, h.Groups)
	from := func(l *Layout, group int, alike bool) []int {
		at, missing, ok := h.Sources(l, group, nil, alike)
		if !ok {
			return []int{-missing}
		}
		return at
	}
	assert.Equal(t, []int{6, 7}, from(split, 3, false))
	assert.Equal(t, []int{4, 5}, from(split, 0, true), "any group has it")
	assert.Equal(t, []int{-2}, from(split, 1, false), "it is the other process's")
	assert.Equal(t, []int{4}, from(whole, 2, false))
	assert.Equal(t, []int{0}, from(split.SplitOverGroups(0, 4), 3, true), "groups of the other process have parts")
	_, ok = NewProcesses([]int{5, 5}, 9, 1)
	assert.False(t, ok)
	assert.Equal(t, 4, h.NumLocal())
	assert.True(t, slices.Equal(h.Of, []int{0, 0, 0, 0, 1, 1, 1, 1}))
}
