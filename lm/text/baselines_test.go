package text

import (
	"bytes"
	"compress/gzip"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

func writeRandom(t testing.TB, path string, n int) {
	t.Helper()
	r, text := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
	for i := range text {
		text[i] = byte(r.Uint32())
	}
	require.NoError(t, os.WriteFile(path, text, 0o644))
}

func encoded(t *testing.T, text string) *Tokens {
	t.Helper()
	tokens, err := EncodeText([]byte(text), Bytes())
	require.NoError(t, err)
	return tokens
}

// A uniform model needs 8 bits per byte, and 8 more bits for the end of the text.
func TestBitsPerByteOfAModelThatKnowsNothing(t *testing.T) {
	tokens := encoded(t, "four")
	nats := float64(tokens.Targets()) * math.Log(256)
	assert.InDelta(t, 8*5/4.0, tokens.BitsPerByte(nats), 1e-12)
	assert.True(t, math.IsNaN(encoded(t, "").BitsPerByte(1)))
}

// The figures of texts so short that they are counted by hand.
func TestUnigramAndBigramByHand(t *testing.T) {
	training, heldOut := encoded(t, "aab"), encoded(t, "ab")
	// Targets of training: a a b end; of the held-out text: a b end.
	total := 256 + 4.0
	a, b, end := 3/total, 2/total, 2/total
	got, err := UnigramBitsPerByte(t.Context(), training, heldOut)
	require.NoError(t, err)
	assert.InDelta(t, -(math.Log2(a)+math.Log2(b)+math.Log2(end))/2, got, 1e-12)

	after := func(pair, first float64, u float64) float64 { return math.Log2((pair + 8*u) / (first + 8)) }
	want := -(after(1, 1, a) + after(1, 2, b) + after(1, 1, end)) / 2
	got, err = BigramBitsPerByte(t.Context(), training, heldOut)
	require.NoError(t, err)
	assert.InDelta(t, want, got, 1e-12)

	// The same where pairs are not counted in a table.
	big := func(ids ...int32) *Tokens {
		tokens, err := EncodeText(make([]byte, len(ids)), wide{1 << 11, 0, ids})
		require.NoError(t, err)
		return tokens
	}
	got, err = BigramBitsPerByte(t.Context(), big(5, 5, 6), big(5, 6))
	require.NoError(t, err)
	total = 1<<11 + 4
	a, b, end = 3/total, 2/total, 2/total
	assert.InDelta(t, -(after(1, 1, a)+after(1, 2, b)+after(1, 1, end))/2, got, 1e-12)
}

// Frequent tokens need fewer bits, and random bytes need 8 bits with every baseline.
func TestFiguresOfTexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	writeRandom(t, path, 1<<20)
	files, err := SingleFile(path)
	require.NoError(t, err)
	training, heldOut, err := files.Split(0.25, 0)
	require.NoError(t, err)
	a, err := Encode(t.Context(), training, Bytes())
	require.NoError(t, err)
	b, err := Encode(t.Context(), heldOut, Bytes())
	require.NoError(t, err)
	u, err := UnigramBitsPerByte(t.Context(), a, b)
	require.NoError(t, err)
	assert.InDelta(t, 8, u, 0.01)
	z, err := GzipBitsPerByte(t.Context(), heldOut)
	require.NoError(t, err)
	assert.InDelta(t, 8, z, 0.01)

	a, b = encoded(t, strings.Repeat("abcdefgh", 1000)), encoded(t, strings.Repeat("abcdefgh", 100))
	u, err = UnigramBitsPerByte(t.Context(), a, b)
	require.NoError(t, err)
	assert.InDelta(t, 3, u, 0.1)
	bi, err := BigramBitsPerByte(t.Context(), a, b)
	require.NoError(t, err)
	assert.Less(t, bi, 0.15)
}

// Gzip is what gzip makes of all texts behind each other.
func TestGzipIsOneStream(t *testing.T) {
	files, err := ListFiles(write(t, map[string]string{"a": strings.Repeat("one ", 50), "b": strings.Repeat("one two ",
		50)}), "*")
	require.NoError(t, err)
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, 9)
	require.NoError(t, err)
	_, err = w.Write([]byte(strings.Join(read(t, files), "")))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	got, err := GzipBitsPerByte(t.Context(), files)
	require.NoError(t, err)
	assert.InDelta(t, 8*float64(out.Len())/600, got, 1e-12)
}

func TestFiguresThatCannotBeAreRefused(t *testing.T) {
	other, err := EncodeText([]byte("x"), wide{300, 0, []int32{4}})
	require.NoError(t, err)
	for name, c := range map[string][2]*Tokens{"two vocabularies": {encoded(t, "a"), other}, "no bytes": {encoded(t, "a"),
		encoded(t, "")}} {
		_, err := UnigramBitsPerByte(t.Context(), c[0], c[1])
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
		_, err = BigramBitsPerByte(t.Context(), c[0], c[1])
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
	}
	_, err = GzipBitsPerByte(t.Context(), Files{})
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
}
