package input_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/input"
)

// show prints the elements of a dataset of single tensors.
func show(ds input.Dataset) {
	var all []any
	for e, err := range ds.All(context.Background()) {
		if err != nil {
			panic(err)
		}
		all = append(all, e.Leaf().Flat())
	}
	fmt.Println(all...)
}

func ExampleRange() {
	show(input.Range(5))
	show(input.Range(5).Batch(2, false))
	// Output:
	// [0] [1] [2] [3] [4]
	// [0 1] [2 3] [4]
}

// The stages of a pipeline: each host's share of the numbers, squared, in batches, over two passes.
func ExampleDataset() {
	square := func(_ context.Context, e input.Element) (input.Element, error) {
		n, err := input.Flat[int64](e.Leaf())
		if err != nil {
			return e, err
		}
		return input.Leaf(input.Scalar(n[0] * n[0])), nil
	}
	show(input.Range(8).Shard(2, 1).Map(square, input.MapOptions{}).Repeat(2).Batch(3, false))
	// Output: [1 9 25] [49 1 9] [25 49]
}

// Sentences of different length.
func ExampleFromElements() {
	show(input.FromElements(input.Leaf(input.Vector[int32](1, 2, 3)), input.Leaf(input.Vector[int32](4))))
	// Output: [1 2 3] [4]
}

// A user-defined iterator, which starts again in each pass.
func ExampleFromSeq() {
	show(input.FromSeq(func(_ context.Context, pass input.Pass) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			for n := int64(1); n < 100 && yield(input.Leaf(input.Scalar(n)), nil); n *= 3 {
			}
		}
	}, input.SeqOptions{}))
	// Output: [1] [3] [9] [27] [81]
}

// Images of four bytes, behind a header of one.
func ExampleFixedRecords() {
	dir, err := os.MkdirTemp("", "input-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "images")
	if err := os.WriteFile(path, []byte{9, 1, 2, 3, 4, 5, 6, 7, 8}, 0o600); err != nil {
		panic(err)
	}
	show(input.FixedRecords([]string{path}, input.FixedOptions{HeaderBytes: 1, RecordBytes: 4}))
	// Output: [1 2 3 4] [5 6 7 8]
}

// The last step of a pass, filled up to the rows of the others.
func ExamplePadStep() {
	d, err := input.Distribute(input.Range(3).Batch(4, false), input.Options{Replicas: 2})
	if err != nil {
		panic(err)
	}
	for step, err := range d.All(context.Background()) {
		if err != nil {
			panic(err)
		}
		padded, masks, err := input.PadStep(step, d.MaxRows())
		fmt.Println(padded.Replicas[1].Leaf().Flat(), masks[1].Flat(), err)
	}
	// Output: [2 0] [true false] <nil>
}
