package sharding_test

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestParseOpShardingReadsWhatItWrites(t *testing.T) {
	for _, text := range []string{
		"{replicated}", "{manual}", "{unknown}", "{unreduced}", "{maximal device=3}",
		"{devices=[2,1]0,1}", "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}",
		"{devices=[2,2]<=[4]}", "{devices=[4,2]<=[2,4]T(1,0)}",
		"{devices=[2,1,2,2]0,1,2,3,4,5,6,7 last_tile_dims={manual, replicated}}",
		"{devices=[2,2]<=[4] last_tile_dims={unreduced}}",
		"{}", "{{replicated}, {maximal device=1}, {devices=[2]<=[2]}}",
	} {
		op, err := sharding.ParseOpSharding(text)
		require.NoError(t, err, text)
		assert.Equal(t, text, op.String())
		back, err := sharding.ParseOpShardingProto(op.MarshalProto())
		require.NoError(t, err, text)
		assert.Equal(t, text, back.String())
	}
	op, err := sharding.ParseOpSharding("{{replicated}, /*index=1*/{manual}}")
	require.NoError(t, err)
	assert.Len(t, op.Elements(), 2)
}

func TestParseOpShardingExpandsTransposedIota(t *testing.T) {
	op, err := sharding.ParseOpSharding("{devices=[4,2]<=[2,4]T(1,0)}")
	require.NoError(t, err)
	assert.Equal(t, []int{0, 4, 1, 5, 2, 6, 3, 7}, op.TileDevices())
	assert.Equal(t, "{devices=[4,2]0,4,1,5,2,6,3,7}", op.Explicit().String())
	assert.True(t, op.Equal(op.Explicit()))
}

func TestParseOpShardingRefuses(t *testing.T) {
	for _, text := range []string{
		"", "{", "{replicated", "replicated", "{replicated} x", "{maximal device=-1}", "{maximal}",
		"{devices=[2]0,0}", "{devices=[2]0}", "{devices=[0]}", "{devices=[]0}", "{devices=[2,2]<=[5]}",
		"{devices=[2,2]<=[2,2]T(0,0)}", "{devices=[2,2]<=[2,2]T(0)}", "{devices=[2,2]<=[2,2]T(0,2)}",
		"{devices=[2]<=[2] last_tile_dims={maximal}}", "{devices=[2]<=[2] last_tile_dims={manual, manual}}",
		"{{{replicated}}}", "{{replicated},}", "{devices=[99999999999,99999999999]<=[4]}", "{devices=[99999999]<=[99999999]}",
		"{/*}", "{devices=[99999999999999999999]0}",
	} {
		_, err := sharding.ParseOpSharding(text)
		var syntax *sharding.SyntaxError
		assert.ErrorAs(t, err, &syntax, text)
	}
	_, err := sharding.ParseOpSharding("{replicated metadata={op_name=\"x\"}}")
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestParseOpShardingProtoRefuses(t *testing.T) {
	for name, wire := range map[string]string{
		"truncated tag":      "08",
		"unknown type":       "0809",
		"maximal without":    "0801",
		"maximal two":        "080122020001",
		"negative device":    "0801220affffffffffffffffff01",
		"tiles no devices":   "08031a0102",
		"repeated devices":   "08031a010222020000",
		"wrong wire type":    "0a00",
		"both iota and list": "08031a0102220200014a0102520100",
		"nested tuple":       "08022a0408022a00",
		"huge tiles":         "08031a0affffffff07ffffffff074a0affffffff07ffffffff07",
		"number too large":   "08ffffffffffffffff7f",
	} {
		_, err := sharding.ParseOpShardingProto(unhex(t, wire))
		assert.Error(t, err, name)
	}
	_, err := sharding.ParseOpShardingProto(unhex(t, "5801"))
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestOpIndexRangesRoundTilesUp(t *testing.T) {
	op, err := sharding.OpTile([]int{4}, nil)
	require.NoError(t, err)
	var got []sharding.Range
	for device := range 4 {
		ranges, holds, err := op.IndexRanges([]int{5}, device)
		require.NoError(t, err)
		assert.True(t, holds)
		got = append(got, ranges...)
	}
	assert.Equal(t, []sharding.Range{{Start: 0, Stop: 2}, {Start: 2, Stop: 4}, {Start: 4, Stop: 5}, {Start: 5, Stop: 5}}, got)
	_, holds, err := op.IndexRanges([]int{5}, 4)
	require.NoError(t, err)
	assert.False(t, holds)
	_, _, err = op.IndexRanges([]int{5, 5}, 0)
	assert.ErrorContains(t, err, "tiles 1 dimensions")
	_, _, err = sharding.OpManual().IndexRanges([]int{5}, 0)
	assert.ErrorContains(t, err, "manual")
	_, _, err = op.IndexRanges([]int{-1}, 0)
	assert.Error(t, err)
}

func TestSplitToLogicalDevicesChecksInOrder(t *testing.T) {
	tests := map[string]struct {
		shape, partitions []int
		count             int
		want              string
	}{
		"unknown rank comes first":     {nil, []int{3}, 2, "rank is unknown"},
		"rank before divisibility":     {[]int{5, 6}, []int{2}, 2, "one for each of its 2 dimensions"},
		"divisibility before product":  {[]int{5, 6}, []int{2, 3}, 2, "size 5 is not divisible by 2"},
		"product":                      {[]int{4, 6}, []int{2, 3}, 2, "product of the partitions [2 3]"},
		"product does not overflow":    {[]int{0, 0, 0}, []int{1 << 62, 4, 2}, 2, "product"},
		"zero":                         {[]int{4}, []int{0}, 1, "in 0 pieces"},
		"negatives with right product": {[]int{4, 6}, []int{-2, -1}, 2, "in -2 pieces"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := sharding.SplitToLogicalDevices(test.shape, test.partitions, test.count)
			assert.ErrorContains(t, err, test.want)
		})
	}
	op, err := sharding.SplitToLogicalDevices([]int{}, []int{}, 1)
	require.NoError(t, err)
	assert.Equal(t, "{replicated}", op.String())
	_, err = sharding.AssignToLogicalDevice(-1, 2)
	assert.ErrorContains(t, err, "no logical device -1")
}

func TestOpSplitTakesNegativeAndUnevenDimensions(t *testing.T) {
	op, err := sharding.OpSplit([]int{4, 7}, -1, 2)
	require.NoError(t, err)
	assert.Equal(t, "{devices=[1,2]0,1}", op.String())
	for _, bad := range [][2]int{{2, 2}, {-3, 2}, {0, 0}, {0, 5}} {
		_, err := sharding.OpSplit([]int{4, 7}, bad[0], bad[1])
		assert.Error(t, err, bad)
	}
	_, err = sharding.OpMeshSplit([]int{2, 2}, nil, []int{0, 0}, nil)
	assert.ErrorContains(t, err, "used twice")
	_, err = sharding.OpMeshSplit([]int{2, 2}, []int{0}, []int{0}, nil)
	assert.ErrorContains(t, err, "give 4")
}

func TestSpecAndOpShardingMeanTheSame(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		m := randomMesh(t, rng)
		spec, shape := randomSpec(t, rng, m)
		op, err := spec.OpSharding(m)
		require.NoError(t, err)
		for device := range m.Size() {
			want, err := sharding.IndexRanges(m, spec, shape, device)
			require.NoError(t, err)
			got, holds, err := op.IndexRanges(shape, device)
			require.NoError(t, err)
			require.True(t, holds)
			require.Equal(t, want, got, "%v %v %v", m, spec, op)
		}
		back, err := sharding.SpecOf(m, op, spec.Rank())
		require.NoError(t, err)
		again, err := back.OpSharding(m)
		require.NoError(t, err)
		require.Equal(t, op.String(), again.String(), "%v: %v became %v", m, spec, back)
		parsed, err := sharding.ParseOpSharding(op.String())
		require.NoError(t, err)
		require.True(t, op.Equal(parsed))
		wire, err := sharding.ParseOpShardingProto(op.Explicit().MarshalProto())
		require.NoError(t, err)
		require.True(t, op.Equal(wire))
	}
}

func TestSpecOpShardingWritesTheShortestIota(t *testing.T) {
	m := mesh(t, sharding.Axis{Name: "a", Size: 2}, sharding.Axis{Name: "one", Size: 1}, sharding.Axis{Name: "b", Size: 2}, sharding.Axis{Name: "c", Size: 4})
	for _, test := range []struct {
		spec sharding.Spec
		want string
	}{
		{sharding.P("a", "b"), "{devices=[2,2,4]<=[16] last_tile_dim_replicate}"},
		{sharding.P([]string{"a", "b", "c"}), "{devices=[16]<=[16]}"},
		{sharding.P("c", nil), "{devices=[4,1,4]<=[4,4]T(1,0) last_tile_dim_replicate}"},
		{sharding.P("c", []string{"b", "a"}), "{devices=[4,4]<=[2,2,4]T(2,1,0)}"},
		{sharding.P("one"), "{replicated}"},
	} {
		op, err := test.spec.OpSharding(m)
		require.NoError(t, err)
		assert.Equal(t, test.want, op.String())
	}
	_, err := sharding.P("zz").OpSharding(m)
	assert.Error(t, err)
}

func TestSpecOfRefusesWhatNoSpecSays(t *testing.T) {
	m := mesh2x4(t)
	for _, text := range []string{
		"{maximal device=0}", "{manual}", "{devices=[8]1,0,2,3,4,5,6,7}", "{devices=[4]<=[4]}",
		"{devices=[4,2]<=[8] last_tile_dim_replicate}", "{devices=[2,4]<=[8] last_tile_dims={manual}}",
	} {
		op, err := sharding.ParseOpSharding(text)
		require.NoError(t, err)
		_, err = sharding.SpecOf(m, op, 1)
		assert.ErrorIs(t, err, errors.ErrUnsupported, text)
	}
	op, err := sharding.ParseOpSharding("{devices=[8]<=[8]}")
	require.NoError(t, err)
	_, err = sharding.SpecOf(m, op, 2)
	assert.ErrorContains(t, err, "rank 2")
	_, err = sharding.SpecOf(m, op, -1)
	assert.Error(t, err)
}

func FuzzParseOpSharding(f *testing.F) {
	for _, seed := range []string{
		"{replicated}", "{maximal device=0}", "{devices=[2,1]0,1}", "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}",
		"{devices=[4,2]<=[2,4]T(1,0)}", "{devices=[2,2]<=[4] last_tile_dims={manual, replicated}}", "{{replicated}, /*index=1*/{manual}}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		op, err := sharding.ParseOpSharding(text)
		if err != nil {
			return
		}
		again, err := sharding.ParseOpSharding(op.String())
		require.NoError(t, err)
		require.Equal(t, op.String(), again.String())
		require.True(t, op.Equal(again))
	})
}

func FuzzParseOpShardingProto(f *testing.F) {
	for _, seed := range []string{
		"", "08011a0101220100", "08031a02010222020001", "08031a030201022204000102033001", "08022a002a0808011a0101220101",
		"08031a04020102022208000102030405060742020400", "08031a0204024a02020452020100",
	} {
		f.Add(unhex(f, seed))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		op, err := sharding.ParseOpShardingProto(wire)
		if err != nil {
			return
		}
		again, err := sharding.ParseOpShardingProto(op.MarshalProto())
		require.NoError(t, err)
		require.True(t, op.Equal(again))
		text, err := sharding.ParseOpSharding(op.String())
		require.NoError(t, err)
		require.True(t, op.Equal(text))
	})
}

func TestOpShardingTellsItsParts(t *testing.T) {
	op, err := sharding.ParseOpSharding("{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}")
	require.NoError(t, err)
	assert.Equal(t, sharding.KindTiled, op.Kind())
	assert.Equal(t, "tiled", op.Kind().String())
	assert.Equal(t, "Kind(9)", sharding.Kind(9).String())
	assert.Equal(t, []int{2, 1, 2, 2}, op.TileDims())
	assert.Equal(t, []int{2, 1}, op.TileShape())
	assert.Equal(t, []sharding.Kind{sharding.KindManual, sharding.KindReplicated}, op.Subgroups())
	assert.Equal(t, -1, op.Device())
	one, err := sharding.OpMaximal(3)
	require.NoError(t, err)
	assert.Equal(t, 3, one.Device())
	assert.Nil(t, one.TileDevices())
	tuple, err := sharding.OpTuple(op, one)
	require.NoError(t, err)
	_, err = sharding.OpTuple(tuple)
	assert.ErrorContains(t, err, "flatten")
	whole, err := sharding.OpTile([]int{1, 1}, nil)
	require.NoError(t, err)
	pair, err := sharding.OpTuple(whole, one)
	require.NoError(t, err)
	assert.Equal(t, "{{replicated}, {maximal device=3}}", pair.Canonical().String())
}

func TestParseOpShardingProtoReadsUnpackedAndUnknownFields(t *testing.T) {
	// Fields 3 and 4 one number at a time, tile_shape (2) and metadata (7).
	op, err := sharding.ParseOpShardingProto(unhex(t, "0803"+"1802"+"1801"+"2001"+"2000"+"120108"+"3a00"))
	require.NoError(t, err)
	assert.Equal(t, "{devices=[2,1]1,0}", op.String())
	for name, wire := range map[string]string{
		"cut unknown field": "3a05", "cut list": "08031a0501", "cut list number": "08031a01ff", "string for tuple": "2801",
		"cut tuple": "2a05", "last twice": "08031a02010122010030014a0100", "both last forms": "08031a03010101220100300142010" + "0",
		"bad element": "08022a020809",
	} {
		_, err := sharding.ParseOpShardingProto(unhex(t, wire))
		assert.Error(t, err, name)
	}
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}
