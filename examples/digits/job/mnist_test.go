package job

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input/idx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// idxFile is an IDX file of unsigned bytes.
func idxFile(data []byte, dims ...int) []byte {
	out := []byte{0, 0, 8, byte(len(dims))}
	for _, d := range dims {
		out = binary.BigEndian.AppendUint32(out, uint32(d))
	}
	return append(out, data...)
}

// upscaled writes a set of 8x8 digits as IDX files of 28x28.
func upscaled(t *testing.T, dir, name string, s Set, compress bool) {
	t.Helper()
	const side = 28
	var pixels, labels []byte
	for i, label := range s.Labels {
		labels = append(labels, byte(label))
		for y := range side {
			for x := range side {
				pixels = append(pixels, byte(s.Images[i*64+(y*8/side)*8+x*8/side]*255))
			}
		}
	}
	for file, contents := range map[string][]byte{
		"images-idx3-ubyte": idxFile(pixels, s.Len(), side, side), "labels-idx1-ubyte": idxFile(labels, s.Len()),
	} {
		path := filepath.Join(dir, name+"-"+file)
		if compress {
			path, contents = path+".gz", zip(t, contents)
		}
		require.NoError(t, os.WriteFile(path, contents, 0o600))
	}
}

func TestADirectoryOfIDXFilesIsTrainedOn(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	source, err := Digits(1)
	require.NoError(t, err)
	dir := t.TempDir()
	upscaled(t, dir, "train", source.Train, false)
	upscaled(t, dir, "t10k", source.Test, true)
	data, err := MNIST(dir)
	require.NoError(t, err)
	require.Equal(t, 28*28, data.Train.Features)
	require.Equal(t, source.Train.Labels, data.Train.Labels)
	require.Equal(t, source.Test.Labels, data.Test.Labels)

	result, err := Run(context.Background(), Config{Replicas: 4, Logical: 2, Devices: 8, Data: dir, Plugin: plugin, Steps: 250, Batch: 64}, Hooks{})
	require.NoError(t, err)
	assert.Equal(t, source.Test.Len(), result.Of)
	assert.GreaterOrEqual(t, *result.Accuracy, 0.95)
}

func TestIDXDirectoriesThatDoNotFitAreRefused(t *testing.T) {
	image := func(n, h, w int) []byte { return idxFile(make([]byte, n*h*w), n, h, w) }
	files := func(change map[string][]byte) map[string][]byte {
		all := map[string][]byte{
			"train-images-idx3-ubyte": image(2, 2, 2), "train-labels-idx1-ubyte": idxFile([]byte{1, 9}, 2),
			"t10k-images-idx3-ubyte": image(1, 2, 2), "t10k-labels-idx1-ubyte": idxFile([]byte{0}, 1),
		}
		for name, contents := range change {
			if all[name] = contents; contents == nil {
				delete(all, name)
			}
		}
		return all
	}
	for _, c := range []struct {
		name   string
		change map[string][]byte
		want   string
	}{
		{"whole", nil, ""},
		{"a file missing", map[string][]byte{"t10k-labels-idx1-ubyte": nil}, "t10k-labels-idx1-ubyte"},
		{"counts differ", map[string][]byte{"train-labels-idx1-ubyte": idxFile([]byte{1}, 1)}, "shape [2 2 2] with labels of shape [1]"},
		{"labels in place of images", map[string][]byte{"train-images-idx3-ubyte": idxFile([]byte{1, 2}, 2)}, "give files of shape [count height width]"},
		{"a label beyond nine", map[string][]byte{"train-labels-idx1-ubyte": idxFile([]byte{1, 10}, 2)}, "label 1 is 10"},
		{"test images of another size", map[string][]byte{"t10k-images-idx3-ubyte": image(1, 3, 3)}, "4 pixels to train on and of 9"},
		{"no images", map[string][]byte{"t10k-images-idx3-ubyte": image(0, 2, 2), "t10k-labels-idx1-ubyte": idxFile(nil, 0)}, "no t10k images"},
		{"images of no pixels", map[string][]byte{"train-images-idx3-ubyte": image(2, 0, 2)}, "no train images"},
		{"truncated", map[string][]byte{"train-images-idx3-ubyte": image(2, 2, 2)[:20]}, "announce 8 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, contents := range files(c.change) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), contents, 0o600))
			}
			_, err := MNIST(dir)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, dir)
			if format := (*idx.FormatError)(nil); c.name == "truncated" {
				require.ErrorAs(t, err, &format)
			}
		})
	}
}
