package input_test

import (
	"context"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/tpustrategy/tpustrategy/input"
)

// Eleven numbers in global batches of four, for two replicas. The last batch has three rows.
func ExampleDistribute() {
	ctx := context.Background()
	d, err := input.Distribute(input.Range(11).Batch(4, false), input.Options{Replicas: 2})
	if err != nil {
		log.Fatal(err)
	}
	for step, err := range d.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(step.Index, step.Replicas[0].Leaf().Flat(), step.Replicas[1].Leaf().Flat())
	}
	// Output:
	// 0 [0 1] [2 3]
	// 1 [4 5] [6 7]
	// 2 [8 9] [10]
}

// Each host makes its own dataset, of batches for one replica.
func ExampleFromFunction() {
	d, err := input.FromFunction(func(c input.Context) (input.Dataset, error) {
		size, err := c.PerReplicaBatchSize(4)
		return input.Range(8).Shard(c.NumInputPipelines, c.InputPipelineID).Batch(size, true), err
	}, input.Options{Replicas: 2, Processes: 2, Process: 1})
	if err != nil {
		log.Fatal(err)
	}
	for step, err := range d.All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(step.Replicas[0].Leaf().Flat())
	}
	// Output:
	// [1 3]
	// [5 7]
}

// A position in the middle of a shuffled epoch is small, and goes through JSON.
func ExampleDistributedDataset_OpenAt() {
	ctx := context.Background()
	ds := input.Range(6).Shuffle(3, input.ShuffleOptions{Seed: 1}).Repeat(-1).Batch(2, true)
	d, err := input.Distribute(ds, input.Options{})
	if err != nil {
		log.Fatal(err)
	}
	steps, err := d.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer steps.Close()
	if _, err := steps.Next(ctx); err != nil {
		log.Fatal(err)
	}
	state, err := steps.State()
	if err != nil {
		log.Fatal(err)
	}
	saved, err := state.Marshal()
	if err != nil {
		log.Fatal(err)
	}
	want, err := steps.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}

	position, err := input.ParseState(saved)
	if err != nil {
		log.Fatal(err)
	}
	resumed, err := d.OpenAt(ctx, position)
	if err != nil {
		log.Fatal(err)
	}
	defer resumed.Close()
	got, err := resumed.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(fmt.Sprint(got.Replicas[0].Leaf().Flat()) == fmt.Sprint(want.Replicas[0].Leaf().Flat()))
	// Output: true
}

// A short batch gets the static size that a compiled step needs.
func ExamplePad() {
	padded, mask, err := input.Pad(input.Leaf(input.Vector[float32](1, 2)), 3)
	fmt.Println(padded.Leaf().Flat(), mask.Flat(), err)
	// Output: [1 2 0] [true true false] <nil>
}

func ExampleFromSlices() {
	images, err := input.NewTensor([]float32{1, 2, 3, 4}, 2, 2)
	if err != nil {
		log.Fatal(err)
	}
	ds := input.FromSlices(input.Dict(map[string]input.Element{
		"image": input.Leaf(images),
		"label": input.Leaf(input.Vector[int32](7, 8)),
	}))
	fmt.Println(ds.Info().Cardinality, ds.Info().Spec)
	fmt.Println(ds.Batch(2, true).Info().Spec)
	// Output:
	// 2 {image: float32[2], label: int32[]}
	// {image: float32[2 2], label: int32[2]}
}

func ExampleCSV() {
	files := fstest.MapFS{"points.csv": {Data: []byte("x,name,y\n1.5,a,3\n2.5,b,\n")}}
	ds := input.CSV([]string{"points.csv"}, input.CSVOptions{
		FileOptions: input.FileOptions{FS: files},
		Header:      true,
		Columns:     []input.Column{{Name: "x", Kind: input.Float32}, {Name: "y", Kind: input.Int32, Default: "-1"}},
	})
	for e, err := range ds.Batch(2, false).All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		for i, key := range e.Keys() {
			fmt.Println(key, e.At(i).Leaf().Flat())
		}
	}
	// Output:
	// x [1.5 2.5]
	// y [3 -1]
}

// Two hosts of two replicas are interrupted after a step; one host of two replicas resumes.
func ExampleJoinStates() {
	ctx := context.Background()
	data := input.Range(12).Batch(4, true)
	var states []input.State
	for process := range 2 {
		d, _ := input.Distribute(data, input.Options{Replicas: 4, Processes: 2, Process: process})
		steps, _ := d.Open(ctx)
		_, _ = steps.Next(ctx)
		state, _ := steps.State()
		states = append(states, state) // as the hosts tell each other
		_ = steps.Close()
	}
	whole, err := input.JoinStates(states)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, _ := input.Distribute(data, input.Options{Replicas: 2})
	steps, err := d.OpenAt(ctx, whole)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer steps.Close()
	for {
		step, err := steps.Next(ctx)
		if err != nil {
			break
		}
		fmt.Println(step.Index, step.Replicas[0].Leaf().Flat(), step.Replicas[1].Leaf().Flat())
	}
	// Output:
	// 1 [4 5] [6 7]
	// 2 [8 9] [10 11]
}

// Images and labels of two sources, as pairs.
func ExampleZip() {
	images := input.FromSlices(input.Leaf(input.Vector[float32](0.1, 0.2, 0.3)))
	labels := input.FromSlices(input.Leaf(input.Vector[int32](7, 8, 9)))
	pairs := input.Zip(images, labels).Batch(2, false)
	fmt.Println(pairs.Info().Spec, pairs.Info().Cardinality)
	for e, err := range pairs.All(context.Background()) {
		fmt.Println(e.At(0).Leaf(), e.At(1).Leaf(), err)
	}
	// Output:
	// (float32[?], int32[?]) 2
	// float32[2] int32[2] <nil>
	// float32[1] int32[1] <nil>
}

// Records of a file, made into numbers, as batches in a shuffled order.
func ExampleTFRecords() {
	var file []byte
	for i := range 6 {
		file = input.AppendTFRecord(file, []byte{byte(i)})
	}
	records := input.TFRecords([]string{"bytes.tfrecord"},
		input.FileOptions{FS: fstest.MapFS{"bytes.tfrecord": {Data: file}}})
	numbers := records.Map(func(_ context.Context, e input.Element) (input.Element, error) {
		return input.Leaf(input.Scalar(int32(e.Leaf().Flat().([]string)[0][0]))), nil
	}, input.MapOptions{})
	for batch, err := range numbers.Shuffle(6, input.ShuffleOptions{Seed: 1}).Batch(4, false).All(context.Background()) {
		fmt.Println(batch.Leaf().Flat(), err)
	}
	// Output:
	// [5 2 1 3] <nil>
	// [0 4] <nil>
}

func ExampleLines() {
	files := fstest.MapFS{"poem": {Data: []byte("first\nsecond\n")}}
	for line, err := range input.Lines([]string{"poem"}, input.FileOptions{FS: files}).All(context.Background()) {
		fmt.Println(line.Leaf().Flat(), err)
	}
	// Output:
	// [first] <nil>
	// [second] <nil>
}
