package input_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestTFRecordsRoundTrip(t *testing.T) {
	want := []string{"", "abc", strings.Repeat("\x00\xff", 5000), "last"}
	var file []byte
	for _, r := range want {
		file = input.AppendTFRecord(file, []byte(r))
	}
	paths, opts := memorySource(string(file), "", string(input.AppendTFRecord(nil, []byte("b"))))
	got, err := stringsOf(t, input.TFRecords(paths, opts))
	require.NoError(t, err)
	assert.Equal(t, append(want, "b"), got)
}

func TestTFRecordBytesAreThoseOfTheFormat(t *testing.T) {
	// The record of "abc" as the format defines it: the CRC-32C of the length is 0xb8c97cb7 before
	// masking.
	got := input.AppendTFRecord(nil, []byte("abc"))
	require.Len(t, got, 12+3+4)
	assert.Equal(t, []byte{3, 0, 0, 0, 0, 0, 0, 0}, got[:8])
	assert.Equal(t, "abc", string(got[12:15]))
	// CRC-32C("abc") is 0x364b3fb7; rotated right by 15 and added to 0xa282ead8.
	crc := uint32(0x364b3fb7)
	masked := (crc>>15 | crc<<17) + 0xa282ead8
	assert.Equal(t, []byte{byte(masked), byte(masked >> 8), byte(masked >> 16), byte(masked >> 24)}, got[15:])
}

func TestEveryFlippedBitOfATFRecordIsFound(t *testing.T) {
	file := input.AppendTFRecord(nil, []byte("some data"))
	for i := range len(file) * 8 {
		broken := bytes.Clone(file)
		broken[i/8] ^= 1 << (i % 8)
		paths, opts := memorySource(string(broken))
		_, err := stringsOf(t, input.TFRecords(paths, opts))
		require.ErrorIs(t, err, input.ErrCorrupt, "bit %d", i)
	}
	for n := 1; n < len(file); n++ {
		paths, opts := memorySource(string(file[:n]))
		_, err := stringsOf(t, input.TFRecords(paths, opts))
		require.ErrorIs(t, err, input.ErrCorrupt, "cut to %d bytes", n)
	}
}

func FuzzTFRecords(f *testing.F) {
	f.Add(input.AppendTFRecord(nil, []byte("seed")))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		paths, opts := memorySource(string(data))
		var back []byte
		for e, err := range input.TFRecords(paths, opts).All(context.Background()) {
			if err != nil {
				require.ErrorIs(t, err, input.ErrCorrupt)
				return
			}
			v, _ := input.Flat[string](e.Leaf())
			back = input.AppendTFRecord(back, []byte(v[0]))
		}
		require.Equal(t, string(data), string(back), "what reads without an error writes back the same")
	})
}
