package input

import (
	"context"
	"io"
	"slices"
)

// Batch stacks size consecutive elements along a new axis 0, like tf.data's Dataset.batch. If the
// number of elements is not a multiple of size, the last batch has fewer rows. dropRemainder omits
// that short batch and makes the batch dimension of the spec known.
//
// If the elements are consecutive rows of one tensor in memory (from [FromSlices] or
// [Dataset.Unbatch]), the batch is a view of that tensor. Operations that do not change elements,
// such as Repeat and Take, keep this property. All other batches are copied once.
//
// If [Distribute] divides the dataset, size is the global batch size: the number of rows that all
// replicas together process in one step.
func (d Dataset) Batch(size int, dropRemainder bool) Dataset {
	if size < 1 {
		return invalidDataset("batch", "give at least 1", "a batch of %d rows", size)
	}
	return d.derive(func(info Info) Info {
		info.Spec = mapDims(info.Spec, func(dims []int) []int {
			lead := Unknown
			if dropRemainder {
				lead = size
			}
			return append([]int{lead}, dims...)
		})
		info.BatchSize, info.batchSizeUncertain = size, false
		if full := info.Cardinality / Cardinality(size); info.Cardinality >= 0 {
			if !dropRemainder && info.Cardinality%Cardinality(size) != 0 {
				full++
			}
			info.Cardinality = full
		}
		return info
	}, openWithCounters("batch", 0, func(_ context.Context, src Iterator, _ []int64) (Iterator, error) {
		return &batchIterator{Iterator: src, size: size, dropRemainder: dropRemainder}, nil
	}))
}

type batchIterator struct {
	Iterator
	size          int
	dropRemainder bool
	ranges        []elementRange // reused buffer, empty between calls
}

func (b *batchIterator) Next(ctx context.Context) (Element, error) {
	runs, count := b.ranges[:0], 0
	defer func() {
		clear(runs) // the buffer must not keep the batch's elements alive
		b.ranges = runs
	}()
	for count < b.size {
		r, err := nextRange(ctx, b.Iterator, b.size-count)
		if err == io.EOF {
			break
		}
		if err != nil {
			return Element{}, err
		}
		runs, count = appendRange(runs, r), count+r.count
	}
	if count == 0 || b.dropRemainder && count < b.size {
		return Element{}, io.EOF
	}
	batch, err := stackRanges(runs, count)
	if err != nil {
		return Element{}, wrapError("batch", "", err)
	}
	return batch, nil
}

func (b *batchIterator) State() (State, error) { return operationState("batch", b.Iterator) }

// Unbatch yields each row of each batch as one element, like tf.data's Dataset.unbatch. It is the
// inverse of Batch. A restore reads the current batch again.
func (d Dataset) Unbatch() Dataset {
	return d.derive(func(info Info) Info {
		rows := leadingDim(info.Spec)
		if slices.ContainsFunc(info.Spec.Leaves(), func(s TensorSpec) bool { return len(s.Dims) == 0 }) {
			return Info{Cardinality: UnknownCardinality}
		}
		info.Spec = mapDims(info.Spec, func(dims []int) []int { return dims[1:] })
		info.BatchSize = 0
		switch {
		case rows >= 0:
			info.Cardinality = info.Cardinality.multiply(int64(rows))
		case info.Cardinality > 0:
			info.Cardinality = UnknownCardinality
		}
		return info
	}, openWithCounters("unbatch", 1, func(ctx context.Context, src Iterator, counters []int64) (Iterator, error) {
		u := &unbatchIterator{pieceReader: pieceReader{Iterator: src}}
		return u, u.restorePiece(ctx, counters[0], numRows)
	}))
}

type unbatchIterator struct {
	pieceReader
	table *rowTable // the rows of the current batch
}

func (u *unbatchIterator) Next(ctx context.Context) (Element, error) { return nextElement(ctx, u) }

func (u *unbatchIterator) nextRange(ctx context.Context, limit int) (elementRange, error) {
	for u.nextPiece >= u.numPieces {
		if err := u.readBatch(ctx, numRows); err != nil {
			return elementRange{}, err
		}
		u.table = nil
	}
	if u.table == nil {
		u.table = &rowTable{u.current}
	}
	r := elementRange{lazyElement{table: u.table, row: u.nextPiece}, min(limit, u.numPieces-u.nextPiece)}
	u.nextPiece += r.count
	return r, nil
}

func (u *unbatchIterator) State() (State, error) { return u.pieceState("unbatch") }
