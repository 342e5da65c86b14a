package report

import (
	"math"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// hloProduct says what a matrix product or a convolution multiplies and sums.
type hloProduct struct {
	contracting []uint64 // of the left operand of a matrix product
	window      []windowDim
	// Dimensions of a convolution.
	inputBatch, inputFeature, outputFeature uint64
	inputSpatial, kernelSpatial, outSpatial []uint64
	featureGroups, batchGroups              uint64
}

// windowDim is a dimension of a convolution's window.
type windowDim struct{ size, stride, low, dilation, base int64 }

func parseWindowDim(b []byte) (windowDim, error) {
	d := windowDim{size: 1, stride: 1, dilation: 1, base: 1}
	err := decode(b, protoint.Into{1: &d.size, 2: &d.stride, 3: &d.low, 5: &d.dilation, 6: &d.base})
	return d, err
}

// dot counts a matrix product's operations, a multiplication and an addition as two.
func (p hloProduct) dot(left, out hloShape) float64 {
	flops := 2 * out.count()
	for _, d := range p.contracting {
		flops *= left.dim(d)
	}
	return flops
}

// convolution counts a convolution's operations: for each element of the result the products whose
// input lies inside, and not in the padding or between dilated rows.
func (p hloProduct) convolution(in, out hloShape) float64 {
	flops := 2 * in.dim(p.inputFeature) / float64(max(p.featureGroups, 1)) *
		out.dim(p.outputFeature) * in.dim(p.inputBatch) / float64(max(p.batchGroups, 1))
	for i, w := range p.window {
		if i < len(p.inputSpatial) && i < len(p.outSpatial) {
			flops *= w.inside(int64(in.dim(p.inputSpatial[i])), int64(out.dim(p.outSpatial[i])))
		}
	}
	return flops
}

// maxInside bounds what is counted one by one; a larger window is taken for full.
const maxInside = 1 << 22

// inside counts the places of the window in one dimension that lie on the input, over all places of
// the result.
func (w windowDim) inside(in, out int64) float64 {
	if w.low == 0 && w.base == 1 && (out-1)*w.stride+(w.size-1)*w.dilation < in {
		return float64(w.size) * float64(out)
	}
	if w.size < 1 || out < 1 || in < 1 || w.base < 1 || w.size > maxInside/out {
		return max(float64(w.size), 0) * max(float64(out), 0)
	}
	n := 0
	for k := range w.size {
		for o := range out {
			at := o*w.stride + k*w.dilation - w.low
			if at >= 0 && at%w.base == 0 && at/w.base < in {
				n++
			}
		}
	}
	return float64(n)
}

// sublanes is to what tiles pad the rows of an operand.
const sublanes = 8

// padded counts the operations of a matrix product or a convolution as a matrix unit does them, with
// the dimensions that it sums over and puts out filled up to its side; 0 for any other operation.
func padded(c *hloComputation, i *hloInstruction, tile float64) float64 {
	left := c.operand(i, 0)
	fill := func(n, to float64) float64 { return math.Ceil(max(n, 1)/to) * to / max(n, 1) }
	switch i.opcode {
	case "dot":
		summed := 1.0
		for _, d := range i.product.contracting {
			summed *= left.dim(d)
		}
		rank := uint64(len(i.shape.dims))
		return i.product.dot(left, i.shape) * fill(summed, tile) * fill(i.shape.dim(rank-1), tile) * fill(i.shape.dim(rank-2), sublanes)
	case "convolution":
		p := i.product
		return p.convolution(left, i.shape) * fill(left.dim(p.inputFeature), tile) * fill(i.shape.dim(p.outputFeature), tile)
	}
	return 0
}
