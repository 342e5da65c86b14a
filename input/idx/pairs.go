package idx

import (
	"fmt"
	"io/fs"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// ReadTrainTest reads the sets "train" and "t10k" with [ReadLabeledImages] from the folder dir. If
// dir is empty, it reads from the file system fallback, such as embedded data.
func ReadTrainTest(dir string, fallback fs.FS) (training, test input.Dataset, err error) {
	if dir != "" {
		fallback = files.Dir(dir)
	}
	if training, err = ReadLabeledImages(fallback, "train"); err == nil {
		test, err = ReadLabeledImages(fallback, "t10k")
	}
	if err != nil && dir != "" {
		err = &errkind.Fault{Op: "idx: folder " + dir, Err: err}
	}
	return training, test, err
}

// ReadLabeledImages reads a set of labeled images, such as "train" or "t10k" of MNIST, into memory.
// It reads the files SET-images-idx3-ubyte, of shape [count height width], and
// SET-labels-idx1-ubyte, of shape [count], each either plain or with the suffix .gz. Each element
// of the dataset is a tuple of an image, uint8 [height width], and a label, a scalar int32, in the
// order of the files.
func ReadLabeledImages(folder fs.FS, set string) (input.Dataset, error) {
	images, err := ReadFile(folder, set+"-images-idx3-ubyte")
	if err != nil {
		return input.Dataset{}, err
	}
	classes, err := ReadFile(folder, set+"-labels-idx1-ubyte")
	if err != nil {
		return input.Dataset{}, err
	}
	if len(images.Dims) != 3 || len(classes.Dims) != 1 || images.Dims[0] != classes.Dims[0] || images.Dims[0] == 0 {
		return input.Dataset{}, &errkind.Fault{Op: "idx: " + set, Class: errkind.ValueError,
			Hint:   "give files of shape [count height width] and [count]",
			Reason: fmt.Sprintf("images of shape %v with labels of shape %v", images.Dims, classes.Dims)}
	}
	x, err := input.NewTensor(images.Data, images.Dims...)
	if err != nil {
		return input.Dataset{}, err
	}
	labels := make([]int32, len(classes.Data))
	for i, class := range classes.Data {
		labels[i] = int32(class)
	}
	return input.FromSlices(input.Tuple(input.Leaf(x), input.Leaf(input.Vector(labels...)))), nil
}
