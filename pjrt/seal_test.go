package pjrt

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func someShapes() *[]*shape {
	return &[]*shape{newShapeInt64(F32, []int64{2, 300}), newShapeInt64(S64, nil), newShapeInt64(BF16, []int64{0})}
}

func TestSealKeepsParameters(t *testing.T) {
	for _, params := range []*[]*shape{nil, {}, someShapes()} {
		payload, got, err := decodeSerialized(encodeSerialized([]byte("payload"), params))
		require.NoError(t, err)
		assert.Equal(t, "payload", string(payload))
		if params == nil {
			assert.Nil(t, got)
			continue
		}
		require.NotNil(t, got)
		require.Len(t, got, len(*params))
		for i, s := range *params {
			assert.True(t, s.equal(got[i]), "%v, not %v", got[i], s)
		}
	}
}

func FuzzUnseal(f *testing.F) {
	f.Add(encodeSerialized([]byte("payload"), nil))
	f.Add(encodeSerialized([]byte("payload"), someShapes()))
	f.Add([]byte(magicWithShapes))
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, params, err := decodeSerialized(b)
		want := &params
		if params == nil {
			want = nil
		}
		if err == nil && !bytes.Equal(encodeSerialized(payload, want), b) {
			t.Fatal("accepted what seal did not write")
		}
	})
}
