package checkpoint

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/engine/lazy"
)

// source is a saved variable whose parts are read on demand.
type source struct {
	of       *Checkpoint
	variable *variable
}

var _ lazy.Parts = (*source)(nil)

func (c *Checkpoint) parts(v *variable) *source { return &source{of: c, variable: v} }

func (p *source) Shape() shapes.Shape { return p.variable.Shape }

func (p *source) ReadPart(ctx context.Context, start, size []int, into []byte) error {
	return p.read(ctx, into, box{start, size, into})
}

// ReadCells reads a box as consecutive cells.
func (p *source) ReadCells(ctx context.Context, start, size, cells []int, into []byte) error {
	cell, n := make([]int, len(size)), p.variable.element
	for d := range size {
		cell[d] = size[d] / cells[d]
		n *= int64(cell[d])
	}
	var boxes []box
	for i := 0; int64(i)*n < int64(len(into)); i++ {
		from, rest := slices.Clone(start), i
		for d := len(cells) - 1; d >= 0; d-- {
			from[d] += rest % cells[d] * cell[d]
			rest /= cells[d]
		}
		boxes = append(boxes, box{from, cell, into[int64(i)*n:][:n]})
	}
	return p.read(ctx, into, boxes...)
}

func (p *source) read(ctx context.Context, into []byte, boxes ...box) error {
	v := p.variable
	if err := p.of.fill(ctx, v, boxes...); err != nil {
		return err
	}
	if v.Shape.DType != dtypes.Bool {
		return nil
	}
	// The memory of a Go bool must be 0 or 1.
	if i := slices.IndexFunc(into, func(b byte) bool { return b > 1 }); i >= 0 {
		return &CorruptError{File: p.of.path, Variable: v.Path, Reason: fmt.Sprintf("truth value %d is the byte %d", i, into[i])}
	}
	return nil
}

// tensor reads the value of a variable.
func (c *Checkpoint) tensor(ctx context.Context, v *variable) (*tensors.Tensor, error) {
	if !v.Shape.Ok() {
		return nil, faultOf(v.Path, fmt.Sprintf("GoMLX has no tensors of the file's dtype %s", v.dtype), "convert the tensor in the file to another dtype", nil)
	}
	t := tensors.FromShape(v.Shape)
	if v.bytes == 0 {
		return t, nil
	}
	var failed error
	err := t.MutableBytes(func(data []byte) {
		failed = c.parts(v).ReadPart(ctx, make([]int, v.Shape.Rank()), v.Shape.Dimensions, data)
	})
	if err != nil {
		return nil, faultOf(v.Path, "not read", "", err)
	}
	if failed != nil {
		return nil, failed
	}
	return t, nil
}
