package input

import (
	"context"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// operation is a source that transforms the elements of one other source, such as Map or Shuffle.
type operation struct {
	input       Source
	updateInfo  func(in Info) Info
	open        openFunc
	isShardHint bool // true for ShardHint, where the policy Hint divides the data
}

// openFunc opens the source in at a position and returns an iterator over the transformed elements.
type openFunc func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error)

// derive returns a dataset that applies an operation to d, or d itself if d has an error.
func (d Dataset) derive(updateInfo func(src Info) Info, open openFunc) Dataset {
	return d.wrapSource(func(src Source) Source { return operation{src, updateInfo, open, false} })
}

func (d operation) Info() Info { return d.updateInfo(d.input.Info()) }

func (d operation) Open(ctx context.Context, pass Pass, start State) (Iterator, error) {
	return d.open(ctx, d.input, pass, start)
}

func (d operation) replaceInputs(replace func(Source) (Source, error), _ bool) (_ Source, err error) {
	d.input, err = replace(d.input)
	return d, err
}

type compositeSource interface {
	// replaceInputs returns the same operation with each input replaced by replace(input).
	// sameElements means that replace does not change the elements of the inputs.
	replaceInputs(replace func(Source) (Source, error), sameElements bool) (Source, error)
}

func mapSources(sources []Source, f func(Source) (Source, error)) (out []Source, err error) {
	out = make([]Source, len(sources))
	for i := range sources {
		if out[i], err = f(sources[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ErrNotShardable matches the error of the policy [File] for a dataset that does not read files.
// Its text is that of TensorFlow's NotFoundError.
var ErrNotShardable = errkind.New(errkind.NotFoundError, "input: found an unshardable source dataset")

func shardFiles(src Source, num, index int) (Source, error) {
	switch s := src.(type) {
	case FileSharder:
		return s.ShardFiles(num, index)
	case compositeSource:
		return s.replaceInputs(func(input Source) (Source, error) { return shardFiles(input, num, index) }, false)
	}
	return nil, &errkind.Fault{Match: ErrNotShardable, Reason: fmt.Sprintf("%T does not read files", src),
		Hint: "use the policy Data or Off"}
}

// keepInfo returns info unchanged. Operations such as Prefetch pass it to derive, because they do
// not change what is known about the elements.
func keepInfo(info Info) Info { return info }

// openWithCounters returns an openFunc for an operation whose saved position consists of numCounters
// integers and the position of its input. newIterator receives the opened input and the counters.
func openWithCounters(op string, numCounters int, newIterator func(ctx context.Context, src Iterator,
	counters []int64) (Iterator, error)) openFunc {
	return func(ctx context.Context, src Source, pass Pass, start State) (Iterator, error) {
		start, err := start.forOp(op, numCounters, 1)
		if err != nil {
			return nil, err
		}
		it, err := src.Open(ctx, pass, start.Inputs[0])
		if err != nil {
			return nil, err
		}
		out, err := newIterator(ctx, it, start.Counters)
		if err != nil {
			it.Close()
			return nil, err
		}
		return out, nil
	}
}

func boolToInt64(value bool) int64 {
	if value {
		return 1
	}
	return 0
}

// operationState returns the position of an operation, which consists of its counters and the
// position of its input.
func operationState(op string, input Iterator, counters ...int64) (State, error) {
	inner, err := input.State()
	if err != nil {
		return State{}, err
	}
	return State{Op: op, Counters: counters, Inputs: []State{inner}}, nil
}

// pieceReader is embedded by iterators that split batches into pieces, which are single rows or
// chunks of rows. It keeps the current batch and the index of the next piece.
type pieceReader struct {
	Iterator
	stateBefore State // position of the input before the current batch
	// current batch
	current              Element
	numPieces, nextPiece int // number of pieces of the current batch, and the index of the next piece to return
}

// readBatch reads the next batch. count returns the number of pieces of a batch.
func (p *pieceReader) readBatch(ctx context.Context, count func(Element) (int, error)) (err error) {
	if p.stateBefore, err = p.Iterator.State(); err != nil {
		return err
	}
	e, err := p.Iterator.Next(ctx)
	if err != nil {
		return err
	}
	n, err := count(e)
	if err != nil {
		return err
	}
	p.current, p.numPieces, p.nextPiece = e, n, 0
	return nil
}

// restorePiece restores a position within a batch: it reads the batch and skips as many pieces as
// next specifies. It does nothing if next is 0.
func (p *pieceReader) restorePiece(ctx context.Context, next int64, count func(Element) (int, error)) error {
	if next == 0 {
		return nil
	}
	if err := p.readBatch(ctx, count); err == io.EOF || err == nil && next > int64(p.numPieces) {
		return stateError("part %d of a batch of %d", next, p.numPieces)
	} else if err != nil {
		return err
	}
	p.nextPiece = int(next)
	return nil
}

// pieceState returns the position before the next piece. The position contains the index of the
// piece in its batch, followed by the operation's other counters.
func (p *pieceReader) pieceState(op string, counters ...int64) (State, error) {
	if p.nextPiece >= p.numPieces {
		return operationState(op, p.Iterator, append([]int64{0}, counters...)...)
	}
	return State{Op: op, Counters: append([]int64{int64(p.nextPiece)}, counters...), Inputs: []State{p.stateBefore}}, nil
}
