package job

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strconv"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/testdata/digits"
)

// Classes is the number of classes of all data here: the digits 0 to 9.
const Classes = 10

// Data holds the images to train on and the images to test with.
type Data struct {
	// Name describes the data to people.
	Name string
	// Train and Test have no example in common.
	Train, Test Set

	// Hidden is the number of hidden units that suit it; Train rounds up to a multiple of the
	// logical devices. Batch and Epochs are the examples of a step and the passes over Train, where
	// the configuration names none. All are positive.
	Hidden, Batch, Epochs int
	// LearningRate is the learning rate of Adam.
	LearningRate float64
}

// Set is a list of labelled images.
type Set struct {
	// Features is the number of pixels of an image.
	Features int
	// Images are the pixels, from 0 to 1, one image after the other.
	Images []float32
	// Labels are the classes, one for each image.
	Labels []int32
}

// Len returns the number of images.
func (s Set) Len() int { return len(s.Labels) }

// Batch is a part of a set, in the tensors of a step.
type Batch struct {
	// Images are float32 [size, features], Labels int32 [size, 1].
	Images, Labels *tensors.Tensor
	// Mask is float32 [size]: 1 for an example, 0 for what fills up the batch.
	Mask *tensors.Tensor
}

// pick copies the images at the given indices to a batch of size rows.
func (s Set) pick(indices []int, size int) Batch {
	images, labels, mask := make([]float32, size*s.Features), make([]int32, size), make([]float32, size)
	for row, i := range indices {
		copy(images[row*s.Features:], s.Images[i*s.Features:(i+1)*s.Features])
		labels[row], mask[row] = s.Labels[i], 1
	}
	return Batch{
		Images: tensors.FromFlatDataAndDimensions(images, size, s.Features),
		Labels: tensors.FromFlatDataAndDimensions(labels, size, 1),
		Mask:   tensors.FromFlatDataAndDimensions(mask, size),
	}
}

// Shuffled yields full batches without end, in passes over the set, each in an order of its own
// that the seed decides. What is left of a pass is not used in it.
func (s Set) Shuffled(seed uint64, size int) iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		if size < 1 || size > s.Len() {
			return
		}
		rng := rand.New(rand.NewPCG(seed, streamBatches))
		for {
			order := rng.Perm(s.Len())
			for ; len(order) >= size; order = order[size:] {
				if !yield(s.pick(order[:size], size)) {
					return
				}
			}
		}
	}
}

// Once yields every image once, in order. The last batch is filled up to size with what its mask
// leaves out.
func (s Set) Once(size int) iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		for start := 0; start < s.Len(); start += size {
			indices := make([]int, min(size, s.Len()-start))
			for i := range indices {
				indices[i] = start + i
			}
			if !yield(s.pick(indices, size)) {
				return
			}
		}
	}
}

// The streams of a seed.
const (
	streamSplit = iota + 1
	streamBatches
)

// heldOut is the part of the digits that is not trained on: one in so many.
const heldOut = 5

// Digits returns the 1,797 digits of 8x8 pixels that the module carries, a fifth of them, chosen by
// the seed, held out for the test.
func Digits(seed uint64) (Data, error) {
	all, err := readDigits(digits.Open())
	if err != nil {
		return Data{}, &errkind.Fault{Op: "job: the digits", Err: err}
	}
	order := rand.New(rand.NewPCG(seed, streamSplit)).Perm(all.Len())
	test := all.Len() / heldOut
	return Data{
		Name: "digits (8x8)", Train: all.subset(order[test:]), Test: all.subset(order[:test]),
		Hidden: 128, Batch: 64, Epochs: 40, LearningRate: 2e-3,
	}, nil
}

func (s Set) subset(indices []int) Set {
	out := Set{Features: s.Features}
	for _, i := range indices {
		out.Images = append(out.Images, s.Images[i*s.Features:(i+1)*s.Features]...)
		out.Labels = append(out.Labels, s.Labels[i])
	}
	return out
}

// readDigits reads lines of 64 pixels from 0 to 16, and a class.
func readDigits(r io.Reader) (Set, error) {
	const side, white = 8, 16
	unzipped, err := gzip.NewReader(r)
	if err != nil {
		return Set{}, err
	}
	lines := csv.NewReader(unzipped)
	lines.FieldsPerRecord = side*side + 1
	lines.ReuseRecord = true
	set := Set{Features: side * side}
	for {
		fields, err := lines.Read()
		if err == io.EOF {
			return set, nil
		}
		if err != nil {
			return Set{}, err
		}
		for i, field := range fields {
			limit := white
			if i == side*side {
				limit = Classes - 1
			}
			value, err := strconv.Atoi(field)
			if err != nil || value < 0 || value > limit {
				line, column := lines.FieldPos(i)
				return Set{}, invalid("read digits", fmt.Sprintf("write a number from 0 to %d", limit), "line %d, column %d: %q", line, column, field)
			}
			if i == side*side {
				set.Labels = append(set.Labels, int32(value))
			} else {
				set.Images = append(set.Images, float32(value)/white)
			}
		}
	}
}
