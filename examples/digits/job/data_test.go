package job

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/idx"
	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/testdata/digits"
	"github.com/tpustrategy/tpustrategy/tpu/system"
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

// TestAccuracyCountsExactly holds the devices' count against plain Go, with a last
// batch that is mostly padding.
func TestAccuracyCountsExactly(t *testing.T) {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 8, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	defer func() { require.NoError(t, sys.Close()) }()
	data, err := Digits(5)
	require.NoError(t, err)
	cfg, err := Config{Replicas: 4, Logical: 2, Devices: 8, Steps: 30, Batch: 44, Seed: 5}.normalize().fit(data)
	require.NoError(t, err)
	require.NotZero(t, data.Test.Len()%cfg.Batch)
	opts, err := options(sys, cfg)
	require.NoError(t, err)
	strat, err := strategy.New(sys, opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, strat.Close()) }()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(5))
	r := runner{strat: strat, store: store, cfg: cfg, data: data, hidden: data.Hidden, result: &Result{}}
	require.NoError(t, r.train(ctx))
	got, err := r.test(ctx)
	require.NoError(t, err)

	require.NoError(t, strat.Variables(store).Pull(ctx))
	flat := func(path string) []float32 {
		value, err := store.GetVariable(path).Value()
		require.NoError(t, err)
		return tensors.MustCopyFlatData[float32](value)
	}
	dense := func(x []float32, scope string, relu bool) []float32 {
		w, b := flat("/"+scope+"/dense/weights"), flat("/"+scope+"/dense/biases")
		y := slices.Clone(b)
		for i, v := range x {
			for j := range y {
				y[j] += v * w[i*len(y)+j]
			}
		}
		for j := range y {
			if relu {
				y[j] = max(y[j], 0)
			}
		}
		return y
	}
	right := 0
	for i, label := range data.Test.Labels {
		y := dense(dense(data.Test.Images[i*64:(i+1)*64], "hidden", true), "output", false)
		if y[label] == slices.Max(y) {
			right++
		}
	}
	assert.Equal(t, float64(right)/float64(data.Test.Len()), got)
	assert.Greater(t, got, 0.5)
}

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

func ExampleDigits() {
	data, err := Digits(1)
	fmt.Println(data.Train.Len(), data.Test.Len(), data.Train.Features, err)
	// Output: 1438 359 64 <nil>
}
