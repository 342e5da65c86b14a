package sharding_test

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestParseOpShardingProtoRejectsInvalidMessages(t *testing.T) {
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

func TestParseOpShardingProtoReadsUnpackedAndUnknownFields(t *testing.T) {
	// Fields 3 and 4 one number at a time, tile_shape (2) and metadata (7).
	op, err := sharding.ParseOpShardingProto(unhex(t, "0803"+"1802"+"1801"+"2001"+"2000"+"120108"+"3a00"))
	require.NoError(t, err)
	assert.Equal(t, "{devices=[2,1]1,0}", op.String())
	for name, wire := range map[string]string{
		"cut unknown field": "3a05", "cut list": "08031a0501", "cut list number": "08031a01ff", "string for tuple": "2801",
		"cut tuple": "2a05", "last twice": "08031a02010122010030014a0100",
		"both last forms": "08031a03010101220100300142010" + "0",
		"bad element":     "08022a020809",
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
