package input_test

import (
	"context"
	"io"
	"testing"

	"github.com/tpustrategy/tpustrategy/input"
)

// BenchmarkStep reads steps of 128 images of 784 float32 with labels for 8 replicas; bytes are
// those of a step.
func BenchmarkStep(b *testing.B) {
	const n, batch, replicas = 6000, 128, 8
	images, err := input.Zeros(input.Float32, n, 784)
	if err != nil {
		b.Fatal(err)
	}
	labels, err := input.Zeros(input.Int32, n)
	if err != nil {
		b.Fatal(err)
	}
	rows := input.FromSlices(input.Tuple(input.Leaf(images), input.Leaf(labels)))
	for name, ds := range map[string]input.Dataset{
		"ordered":    rows.Repeat(-1).Batch(batch, true),
		"shuffled":   rows.Shuffle(1000, input.ShuffleOptions{}).Repeat(-1).Batch(batch, true),
		"prefetched": rows.Shuffle(1000, input.ShuffleOptions{}).Repeat(-1).Batch(batch, true).Prefetch(4),
	} {
		b.Run(name, func(b *testing.B) {
			d, err := input.Distribute(ds, input.Options{Replicas: replicas})
			if err != nil {
				b.Fatal(err)
			}
			steps, err := d.Open(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			defer steps.Close()
			b.SetBytes(batch * 785 * 4)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := steps.Next(context.Background()); err != nil && err != io.EOF {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBatch reads batches of 256 images of 784 float32 with labels; bytes are those of a
// batch.
func BenchmarkBatch(b *testing.B) {
	const n, batch = 4096, 256
	images, err := input.Zeros(input.Float32, n, 784)
	if err != nil {
		b.Fatal(err)
	}
	labels, err := input.Zeros(input.Int32, n)
	if err != nil {
		b.Fatal(err)
	}
	rows := input.FromSlices(input.Tuple(input.Leaf(images), input.Leaf(labels)))
	for _, c := range []struct {
		name string
		ds   input.Dataset
	}{
		{"ordered", rows.Repeat(-1)},
		{"shuffled", rows.Shuffle(n, input.ShuffleOptions{}).Repeat(-1)},
		{"elements", input.New(opaque{source{rows}}).Repeat(-1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			it, err := c.ds.Batch(batch, true).Open(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			defer it.Close()
			b.SetBytes(batch * 785 * 4)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := it.Next(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
