package sharding_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestParseOpShardingIsInverseOfString(t *testing.T) {
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
	assert.Equal(t, "{devices=[4,2]0,4,1,5,2,6,3,7}", op.WithDeviceList().String())
	assert.True(t, op.Equal(op.WithDeviceList()))
}

func TestParseOpShardingRejectsMalformedText(t *testing.T) {
	for _, text := range []string{
		"", "{", "{replicated", "replicated", "{replicated} x", "{maximal device=-1}", "{maximal}",
		"{devices=[2]0,0}", "{devices=[2]0}", "{devices=[0]}", "{devices=[]0}", "{devices=[2,2]<=[5]}",
		"{devices=[2,2]<=[2,2]T(0,0)}", "{devices=[2,2]<=[2,2]T(0)}", "{devices=[2,2]<=[2,2]T(0,2)}",
		"{devices=[2]<=[2] last_tile_dims={maximal}}", "{devices=[2]<=[2] last_tile_dims={manual, manual}}",
		"{{{replicated}}}", "{{replicated},}", "{devices=[99999999999,99999999999]<=[4]}", "{devices=[99999999]<=[99999999]}",
		"{/*}", "{devices=[99999999999999999999]0}",
	} {
		_, err := sharding.ParseOpSharding(text)
		assert.ErrorIs(t, err, sharding.ErrSyntax, text)
	}
	_, err := sharding.ParseOpSharding("{replicated metadata={op_name=\"x\"}}")
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

func FuzzParseOpSharding(f *testing.F) {
	for _, seed := range []string{
		"{replicated}", "{maximal device=0}", "{devices=[2,1]0,1}", "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}",
		"{devices=[4,2]<=[2,4]T(1,0)}", "{devices=[2,2]<=[4] last_tile_dims={manual, replicated}}",
		"{{replicated}, /*index=1*/{manual}}",
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
