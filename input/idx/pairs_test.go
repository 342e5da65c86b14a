package idx_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/input/digits"
	"github.com/tpustrategy/tpustrategy/input/idx"
)

func ExampleReadLabeledImages() {
	test, err := idx.ReadLabeledImages(digits.IDX, "t10k")
	fmt.Println(test.Info().Spec, test.Info().Cardinality, err)
	// Output: (uint8[8 8], int32[]) 357 <nil>
}

func TestPairsAreThoseOfTheFiles(t *testing.T) {
	images, labels := file([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 2, 2, 2), file([]byte{7, 9}, 2)
	for name, folder := range map[string]fstest.MapFS{
		"plain": {"train-images-idx3-ubyte": {Data: images}, "train-labels-idx1-ubyte": {Data: labels}},
		"gzip":  {"train-images-idx3-ubyte.gz": {Data: zip(images)}, "train-labels-idx1-ubyte": {Data: labels}},
	} {
		pairs, err := idx.ReadLabeledImages(folder, "train")
		require.NoError(t, err, name)
		var got []int32
		for e, err := range pairs.All(context.Background()) {
			require.NoError(t, err)
			label, err := input.Flat[int32](e.At(1).Leaf())
			require.NoError(t, err)
			got = append(got, label...)
		}
		assert.Equal(t, []int32{7, 9}, got)
	}
}

func TestWhatAreNoPairsIsAnError(t *testing.T) {
	images, labels := file([]byte{1, 2, 3, 4}, 1, 2, 2), file([]byte{7}, 1)
	for name, c := range map[string]struct {
		folder fstest.MapFS
		want   string
	}{
		"no labels": {fstest.MapFS{"train-images-idx3-ubyte": {Data: images}}, "train-labels-idx1-ubyte"},
		"other counts": {fstest.MapFS{"train-images-idx3-ubyte": {Data: images},
			"train-labels-idx1-ubyte": {Data: file([]byte{1, 2}, 2)}}, "images of shape [1 2 2] with labels of shape [2]"},
		"no images": {fstest.MapFS{"train-images-idx3-ubyte": {Data: file(nil, 0, 2, 2)},
			"train-labels-idx1-ubyte": {Data: file(nil, 0)}}, "images of shape [0 2 2]"},
		"cut short": {fstest.MapFS{"train-images-idx3-ubyte": {Data: images[:10]},
			"train-labels-idx1-ubyte": {Data: labels}}, "train-images-idx3-ubyte"},
	} {
		_, err := idx.ReadLabeledImages(c.folder, "train")
		assert.ErrorContains(t, err, c.want, name)
	}
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "train-images-idx3-ubyte"), 0o600))
	_, err := idx.ReadLabeledImages(os.DirFS(dir), "train")
	assert.ErrorContains(t, err, "it is not a regular file")
	_, _, err = idx.ReadTrainTest(filepath.Join(dir, "none"), digits.IDX)
	assert.ErrorContains(t, err, filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = idx.ReadTrainTest("", digits.IDX)
	assert.NoError(t, err)
}
