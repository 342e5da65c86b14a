package hlo

import (
	"math"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// product describes which dimensions a matrix product or a convolution contracts.
type product struct {
	contracting []uint64 // of the left operand of a matrix product
	window      []windowDim
	// Dimensions of a convolution.
	inputBatch, inputFeature, outputFeature uint64
	inputSpatial, kernelSpatial, outSpatial []uint64
	featureGroups, batchGroups              uint64
}

type windowDim struct{ size, stride, low, dilation, base int64 }

func parseWindowDim(b []byte) (windowDim, error) {
	d := windowDim{size: 1, stride: 1, dilation: 1, base: 1}
	err := decode(b, protoint.Scanner{1: &d.size, 2: &d.stride, 3: &d.low, 5: &d.dilation, 6: &d.base})
	return d, err
}

// dot returns the number of operations of a matrix product. A multiplication and an addition count
// as two operations.
func (p product) dot(left, out hloShape) float64 {
	flops := 2 * out.count()
	for _, d := range p.contracting {
		flops *= left.dim(d)
	}
	return flops
}

// convolution returns the number of operations of a convolution. Products with padding, or with the
// rows that dilation inserts, do not count.
func (p product) convolution(in, out hloShape) float64 {
	flops := 2 * in.dim(p.inputFeature) / float64(max(p.featureGroups, 1)) *
		out.dim(p.outputFeature) * in.dim(p.inputBatch) / float64(max(p.batchGroups, 1))
	for i, w := range p.window {
		if i < len(p.inputSpatial) && i < len(p.outSpatial) {
			flops *= w.countInside(int64(in.dim(p.inputSpatial[i])), int64(out.dim(p.outSpatial[i])))
		}
	}
	return flops
}

// windows returns the number of operations of a reduction over windows of an array, which is the
// number of elements in all windows without padding. If each window contains the whole dimension,
// the reduction is computed only once, because compilers express a sum that is broadcast to the
// shape of its operand in this form.
func (p product) windows(in, out hloShape) float64 {
	flops := 1.0
	for d := range max(len(in.dims), len(out.dims)) {
		of, windows := int64(in.dim(uint64(d))), int64(out.dim(uint64(d)))
		switch {
		case d >= len(p.window):
			flops *= float64(windows)
		case p.window[d].coversInput(of, windows):
			flops *= float64(of)
		default:
			flops *= p.window[d].countInside(of, windows)
		}
	}
	return flops
}

// coversInput reports whether every window contains the whole input.
func (w windowDim) coversInput(in, out int64) bool {
	return w.base == 1 && w.dilation == 1 && w.stride > 0 && w.low >= (out-1)*w.stride && w.size-w.low >= in
}

// maxInside limits the positions that are counted one by one; more positions count as inside.
const maxInside = 1 << 22

// countInside returns, for one dimension, the number of pairs of a result position and a window
// element for which the window element is located on an element of the input.
func (w windowDim) countInside(in, out int64) float64 {
	if w.low == 0 && w.base == 1 && (out-1)*w.stride+(w.size-1)*w.dilation < in {
		return float64(w.size) * float64(out)
	}
	if w.size < 1 || out < 1 || in < 1 || w.base < 1 || w.dilation < 1 || out > maxInside || w.base > 1 &&
		w.size > maxInside/out {
		return max(float64(w.size), 0) * max(float64(out), 0)
	}
	n := 0.0
	for o := range out {
		first := w.low - o*w.stride // offset of the input's first element in the window
		if w.base == 1 {
			begin := max((first+w.dilation-1)/w.dilation, 0) // rounded up: a negative quotient becomes 0 anyway
			n += float64(max(min(floorDiv(in-1+first, w.dilation), w.size-1)-begin+1, 0))
			continue
		}
		for k := range w.size {
			if at := k*w.dilation - first; at >= 0 && at%w.base == 0 && at/w.base < in {
				n++
			}
		}
	}
	return n
}

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}
	return a / b
}

// sublanes is the multiple to which tiles pad the rows of an operand.
const sublanes = 8

// PaddedFLOPs returns the number of operations that a matrix unit executes for a matrix product or
// a convolution. The contracted dimensions and the output dimensions are padded to multiples of
// side, the size of the unit. For other operations, PaddedFLOPs returns 0.
func (i *Instruction) PaddedFLOPs(side float64) float64 {
	left, d := i.operandShape(0), i.product
	padding := func(n, multiple float64) float64 { return math.Ceil(max(n, 1)/multiple) * multiple / max(n, 1) }
	switch i.Opcode {
	case "dot":
		contracted := 1.0
		for _, dim := range d.contracting {
			contracted *= left.dim(dim)
		}
		rank := uint64(len(i.shape.dims))
		return d.dot(left, i.shape) * padding(contracted, side) * padding(i.shape.dim(rank-1),
			side) * padding(i.shape.dim(rank-2), sublanes)
	case "convolution":
		return d.convolution(left, i.shape) * padding(left.dim(d.inputFeature), side) * padding(i.shape.dim(d.outputFeature),
			side)
	}
	return 0
}
