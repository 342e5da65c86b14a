package idx_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input/idx"
)

func zip(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

// file is the bytes of an array, written by hand for small dimensions.
func file(data []byte, dims ...byte) []byte {
	out := []byte{0, 0, 8, byte(len(dims))}
	for _, d := range dims {
		out = append(out, 0, 0, 0, d)
	}
	return append(out, data...)
}

func ExampleRead() {
	array, err := idx.Read(bytes.NewReader([]byte{0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6}))
	fmt.Println(array.Dims, array.Data, err)
	// Output: [2 3] [1 2 3 4 5 6] <nil>
}

func TestReadTakesPlainAndCompressedFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for rank := 1; rank <= 4; rank++ {
		var dims []byte
		var want []int
		size := 1
		for range rank {
			d := rng.IntN(6)
			dims, want, size = append(dims, byte(d)), append(want, d), size*d
		}
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rng.IntN(256))
		}
		for name, contents := range map[string][]byte{"plain": file(data, dims...), "gzip": zip(file(data, dims...))} {
			got, err := idx.Read(iotest.OneByteReader(bytes.NewReader(contents)))
			require.NoError(t, err, "%s %v", name, want)
			assert.Equal(t, idx.Array{Dims: want, Data: data}, got, "%s %v", name, want)
		}
	}
}

func TestReadRefusesMalformedFiles(t *testing.T) {
	whole := file([]byte{1, 2, 3, 4, 5, 6}, 2, 3)
	damaged := zip(whole)
	damaged[len(damaged)-6] ^= 0xff // in the checksum
	flipped := zip(whole)
	flipped[10] = 0xff // in the compressed blocks
	huge := []byte{0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for _, c := range []struct {
		name     string
		contents []byte
		want     string
	}{
		{"empty", nil, "ends in its magic number"},
		{"short magic number", []byte{0, 0, 8}, "ends in its magic number"},
		{"wrong magic number", []byte("PNG file"), "begins with two zero bytes"},
		{"floats", []byte{0, 0, 0x0d, 1, 0, 0, 0, 0}, "element type 0x0d"},
		{"no dimensions", []byte{0, 0, 8, 0}, "0 dimensions"},
		{"too many dimensions", []byte{0, 0, 8, 255}, "255 dimensions"},
		{"short dimensions", whole[:10], "ends in its dimension 1 of 2"},
		{"short data", whole[:len(whole)-1], "announce 6 bytes, but the file ends after 5"},
		{"long data", append(bytes.Clone(whole), 7), "announce 6 bytes, but the file is longer"},
		{"size beyond memory", huge, "announce more than"},
		{"a gigabyte announced, none there", []byte{0, 0, 8, 1, 0x3f, 0xff, 0xff, 0xff}, "ends after 0"},
		{"compressed short data", zip(whole[:len(whole)-1]), "ends after 5"},
		{"compressed long data", zip(append(bytes.Clone(whole), make([]byte, 1<<20)...)), "is longer"},
		{"compressed data cut", zip(whole)[:len(zip(whole))-9], "damaged"},
		{"compressed header cut", zip(whole)[:5], "damaged"},
		{"compressed data flipped", flipped, "damaged"},
		{"checksum wrong", damaged, "damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := idx.Read(bytes.NewReader(c.contents))
			require.ErrorIs(t, err, idx.ErrFormat)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestReadKeepsTheReadersErrors(t *testing.T) {
	broken := errors.New("cable cut")
	whole := file([]byte{1, 2, 3, 4, 5, 6}, 2, 3)
	for n := range whole {
		_, err := idx.Read(io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(broken)))
		require.ErrorIs(t, err, broken, "after %d bytes", n)
	}
}

func TestReadFileFallsBackToTheCompressedName(t *testing.T) {
	folder := fstest.MapFS{}
	_, err := idx.ReadFile(folder, "labels")
	require.ErrorIs(t, err, fs.ErrNotExist)

	folder["labels.gz"] = &fstest.MapFile{Data: zip(file([]byte{7}, 1))}
	got, err := idx.ReadFile(folder, "labels")
	require.NoError(t, err)
	assert.Equal(t, []byte{7}, got.Data)

	folder["labels"] = &fstest.MapFile{Data: file([]byte{8}, 1)}
	got, err = idx.ReadFile(folder, "labels")
	require.NoError(t, err)
	assert.Equal(t, []byte{8}, got.Data, "the plain file comes first")

	folder["labels"] = &fstest.MapFile{Data: []byte("no")}
	_, err = idx.ReadFile(folder, "labels")
	require.ErrorContains(t, err, "idx: read labels: ")

	_, err = idx.ReadFile(folder, ".")
	require.ErrorContains(t, err, "it is not a regular file")
}

func FuzzRead(f *testing.F) {
	whole := file([]byte{1, 2, 3, 4, 5, 6}, 2, 3)
	f.Add(whole)
	f.Add(zip(whole))
	f.Add([]byte{0, 0, 8, 1, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x1f, 0x8b, 8})
	f.Fuzz(func(t *testing.T, contents []byte) {
		array, err := idx.Read(bytes.NewReader(contents))
		if err != nil {
			require.ErrorIs(t, err, idx.ErrFormat)
			return
		}
		size := 1
		for _, d := range array.Dims {
			size *= d
		}
		require.Len(t, array.Data, size)
	})
}
