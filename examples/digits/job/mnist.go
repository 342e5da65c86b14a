package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input/idx"
)

// MNIST reads the four IDX files of MNIST, or of data in its form, from a directory:
// train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte, each plain or compressed with the ending .gz. Errors name the file; those
// of its format are [*idx.FormatError].
func MNIST(dir string) (Data, error) {
	train, err := readPair(dir, "train")
	if err != nil {
		return Data{}, err
	}
	test, err := readPair(dir, "t10k")
	if err != nil {
		return Data{}, err
	}
	if train.Features != test.Features {
		return Data{}, invalid("read "+dir, "give files of one data set", "images of %d pixels to train on and of %d to test", train.Features, test.Features)
	}
	return Data{
		Name: "IDX files in " + dir, Train: train, Test: test,
		Hidden: 512, Batch: 128, Epochs: 5, LearningRate: 1e-3,
	}, nil
}

// readPair reads the images and the labels of a set.
func readPair(dir, name string) (Set, error) {
	images, err := readFile(dir, name+"-images-idx3-ubyte")
	if err != nil {
		return Set{}, err
	}
	labels, err := readFile(dir, name+"-labels-idx1-ubyte")
	if err != nil {
		return Set{}, err
	}
	if len(images.Dims) != 3 || len(labels.Dims) != 1 || images.Dims[0] != labels.Dims[0] {
		return Set{}, invalid("read "+dir, "give files of shape [count height width] and [count]",
			"%s images of shape %v with labels of shape %v", name, images.Dims, labels.Dims)
	}
	if len(images.Data) == 0 {
		return Set{}, invalid("read "+dir, "give a file with at least one", "no %s images", name)
	}
	set := Set{
		Features: images.Dims[1] * images.Dims[2],
		Images:   make([]float32, len(images.Data)), Labels: make([]int32, len(labels.Data)),
	}
	for i, pixel := range images.Data {
		set.Images[i] = float32(pixel) / 255
	}
	for i, label := range labels.Data {
		if label >= Classes {
			return Set{}, invalid("read "+dir, fmt.Sprintf("the classes are 0 to %d", Classes-1), "%s label %d is %d", name, i, label)
		}
		set.Labels[i] = int32(label)
	}
	return set, nil
}

// readFile reads one of the four files. A directory that lacks it is a [*UsageError].
func readFile(dir, name string) (idx.Array, error) {
	t, err := idx.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return t, &UsageError{Flag: "data", Err: err, Reason: fmt.Sprintf(
			"%s has neither %s nor %s.gz; it needs the images and labels of train and t10k, named so", dir, name, name)}
	}
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return t, &UsageError{Flag: "data", Reason: path.Error(), Err: err}
	}
	if err != nil {
		return t, &errkind.Fault{Op: "job: read", Err: err}
	}
	return t, nil
}
