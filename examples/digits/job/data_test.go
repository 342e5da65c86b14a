package job

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/testdata/digits"
)

func zip(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestTheDigitsAreAllThere(t *testing.T) {
	all, err := readDigits(digits.Open())
	require.NoError(t, err)
	require.Equal(t, 1797, all.Len())
	var counts [Classes]int
	for _, label := range all.Labels {
		counts[label]++
	}
	assert.Equal(t, [Classes]int{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}, counts)
	assert.Len(t, all.Images, 1797*64)
	assert.Equal(t, []float32{0, 0, 5.0 / 16, 13.0 / 16, 9.0 / 16}, all.Images[:5])
	assert.Equal(t, float32(1), slices.Max(all.Images))

	data, err := Digits(1)
	require.NoError(t, err)
	assert.Equal(t, 1797, data.Train.Len()+data.Test.Len())
	other, err := Digits(2)
	require.NoError(t, err)
	assert.NotEqual(t, data.Test.Labels, other.Test.Labels)
}

func TestReadDigitsRefusesOtherText(t *testing.T) {
	line := strings.Repeat("0,", 64)
	for name, text := range map[string]string{
		"few columns": "1,2,3\n", "many columns": line + "1,1\n", "a word": strings.Repeat("x,", 64) + "1\n",
		"a pixel beyond white": strings.Repeat("17,", 64) + "1\n", "a negative pixel": strings.Repeat("-1,", 64) + "1\n",
		"a class beyond nine": line + "10\n",
	} {
		_, err := readDigits(bytes.NewReader(zip(t, []byte(line+"9\n"+text))))
		require.Error(t, err, name)
		assert.ErrorContains(t, err, "line 2", name)
	}
	_, err := readDigits(strings.NewReader("plain"))
	require.Error(t, err)
}

// numbered is a set whose images carry their own number.
func numbered(n int) Set {
	s := Set{Features: 2}
	for i := range n {
		s.Images = append(s.Images, float32(i), float32(-i))
		s.Labels = append(s.Labels, int32(i%Classes))
	}
	return s
}

func numbers(t *testing.T, b Batch) (images []float32, labels []int32, mask []float32) {
	t.Helper()
	return tensors.MustCopyFlatData[float32](b.Images), tensors.MustCopyFlatData[int32](b.Labels), tensors.MustCopyFlatData[float32](b.Mask)
}

func TestOnceYieldsEveryImageOnceAndMasksTheRest(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 23} {
		var got []float32
		for b := range numbered(n).Once(8) {
			require.Equal(t, []int{8, 2}, b.Images.Shape().Dimensions)
			images, labels, mask := numbers(t, b)
			for i, m := range mask {
				if m == 1 {
					got = append(got, images[2*i])
					require.Equal(t, int32(images[2*i])%Classes, labels[i])
				}
			}
		}
		require.Len(t, got, n)
		for i, v := range got {
			require.Equal(t, float32(i), v)
		}
	}
}

func TestShuffledPassesUseNoImageTwice(t *testing.T) {
	const n, size = 23, 5
	var pass, before []float32
	batches := 0
	for b := range numbered(n).Shuffled(9, size) {
		images, labels, mask := numbers(t, b)
		for i := range size {
			require.Equal(t, float32(1), mask[i])
			require.Equal(t, -images[2*i], images[2*i+1])
			require.Equal(t, int32(images[2*i])%Classes, labels[i])
			require.NotContains(t, pass, images[2*i])
			pass = append(pass, images[2*i])
		}
		if batches++; batches%(n/size) == 0 {
			require.NotEqual(t, before, pass, "each pass has its own order")
			before, pass = pass, nil
		}
		if batches == 12 {
			break
		}
	}
	require.Equal(t, 12, batches)
	for range numbered(3).Shuffled(1, 4) {
		t.Fatal("a batch that is larger than the set")
	}
}

func ExampleDigits() {
	data, err := Digits(1)
	fmt.Println(data.Train.Len(), data.Test.Len(), data.Train.Features, err)
	// Output: 1438 359 64 <nil>
}
