package checkpoint

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/engine/lazytensor"
)

// variableReader reads slices of a saved variable, so that each device loads only its own shard. It
// implements [lazytensor.Reader].
type variableReader struct {
	checkpoint *Checkpoint
	variable   *variable
}

var _ lazytensor.Reader = (*variableReader)(nil)

func (c *Checkpoint) newReader(v *variable) *variableReader {
	return &variableReader{checkpoint: c, variable: v}
}

func (r *variableReader) Shape() shapes.Shape { return r.variable.Shape }

func (r *variableReader) ReadPart(ctx context.Context, start, size []int, dst []byte) error {
	return r.readBoxes(ctx, dst, box{start, size, dst})
}

// ReadCells reads several adjacent slices of the variable at once. The slices are cells of equal
// size; cells[d] is their number in dimension d. ReadCells writes the cells to dst one after
// another, and the elements of each cell in row-major order.
func (r *variableReader) ReadCells(ctx context.Context, start, size, cells []int, dst []byte) error {
	cell, n := make([]int, len(size)), r.variable.elementSize
	for d := range size {
		cell[d] = size[d] / cells[d]
		n *= int64(cell[d])
	}
	var boxes []box
	for i := 0; int64(i)*n < int64(len(dst)); i++ {
		cellStart, rest := slices.Clone(start), i
		for d := len(cells) - 1; d >= 0; d-- {
			cellStart[d] += rest % cells[d] * cell[d]
			rest /= cells[d]
		}
		boxes = append(boxes, box{cellStart, cell, dst[int64(i)*n:][:n]})
	}
	return r.readBoxes(ctx, dst, boxes...)
}

func (r *variableReader) readBoxes(ctx context.Context, dst []byte, boxes ...box) error {
	v := r.variable
	if err := r.checkpoint.readBoxes(ctx, v, boxes...); err != nil {
		return err
	}
	if v.Shape.DType != dtypes.Bool {
		return nil
	}
	// The memory of a Go bool must be 0 or 1.
	if i := slices.IndexFunc(dst, func(b byte) bool { return b > 1 }); i >= 0 {
		return &CorruptError{File: r.checkpoint.path, Variable: v.Path,
			Reason: fmt.Sprintf("truth value %d is the byte %d", i, dst[i])}
	}
	return nil
}

// readTensor reads the complete value of a variable.
func (c *Checkpoint) readTensor(ctx context.Context, v *variable) (*tensors.Tensor, error) {
	if !v.Shape.Ok() {
		return nil, variableError(v.Path, fmt.Sprintf("GoMLX has no tensors of the file's dtype %s", v.dtype),
			"convert the tensor in the file to another dtype", nil)
	}
	t := tensors.FromShape(v.Shape)
	if v.bytes == 0 {
		return t, nil
	}
	var failed error
	err := t.MutableBytes(func(data []byte) {
		failed = c.newReader(v).ReadPart(ctx, make([]int, v.Shape.Rank()), v.Shape.Dimensions, data)
	})
	if err != nil {
		return nil, variableError(v.Path, "not read", "", err)
	}
	if failed != nil {
		return nil, failed
	}
	return t, nil
}
