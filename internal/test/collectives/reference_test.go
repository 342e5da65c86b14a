package collectives_test

import (
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
)

// array is a row-major tensor on the host. Integers and booleans are stored in ints, other numbers
// in complexes.
type array struct {
	dims      []int
	ints      []int64
	complexes []complex128
}

// rounded converts x to a dtype. Integers wrap around.
func rounded(d dtypes.DType, x int64) int64 {
	switch bits := d.Bits(); {
	case d == dtypes.Bool:
		return min(x, 1)
	case bits >= 64:
		return x
	case d.IsUnsigned() || d == dtypes.Uint2 || d == dtypes.Uint4:
		return x & (1<<bits - 1)
	default:
		return x << (64 - bits) >> (64 - bits)
	}
}

func unsigned(d dtypes.DType) bool {
	return d.IsUnsigned() || d == dtypes.Uint2 || d == dtypes.Uint4
}

func isInt(d dtypes.DType) bool { return d == dtypes.Bool || d.IsInt() }

// values returns an array of a dtype. Integers cover the range of the dtype. The sums of other
// numbers are exact.
func values(d dtypes.DType, dims ...int) array {
	n := 1
	for _, dim := range dims {
		n *= dim
	}
	x := uint64(88172645463325252 + int(d))
	next := func() uint64 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		return x
	}
	a := array{dims: dims}
	for range n {
		switch {
		case d == dtypes.Bool:
			a.ints = append(a.ints, int64(next()>>20&1))
		case d.IsInt():
			a.ints = append(a.ints, rounded(d, int64(next())))
		default:
			re, im := float64(int64(next()>>40%16)-8), float64(int64(next()>>40%16)-8)
			if !d.IsComplex() {
				im = 0
			}
			a.complexes = append(a.complexes, complex(re, im))
		}
	}
	return a
}

// tensor encodes the array as an argument of a step. [decoded] decodes it.
func (a array) tensor() *tensors.Tensor {
	if a.ints != nil {
		return tensors.FromFlatDataAndDimensions(a.ints, a.dims...)
	}
	return tensors.FromFlatDataAndDimensions(a.complexes, a.dims...)
}

func decoded(x *graph.Node, d dtypes.DType) *graph.Node {
	switch {
	case d == dtypes.Uint64:
		return graph.Bitcast(x, d)
	case d == dtypes.Bool:
		return graph.NotEqual(x, graph.ZerosLike(x))
	case d.IsInt() || d.IsComplex():
		return graph.ConvertDType(x, d)
	}
	return graph.ConvertDType(graph.Real(x), d)
}

func encoded(x *graph.Node) *graph.Node {
	d := x.DType()
	switch {
	case d == dtypes.Uint64:
		return graph.Bitcast(x, dtypes.Int64)
	case isInt(d):
		return graph.ConvertDType(x, dtypes.Int64)
	case d.IsComplex():
		return graph.ConvertDType(x, dtypes.Complex128)
	}
	x = graph.ConvertDType(x, dtypes.Float64)
	return graph.Complex(x, graph.ZerosLike(x))
}

// each builds an array with the given dimensions. For each index, from returns the source array and
// its element's index.
func each(dims []int, from func(at []int) (array, []int)) array {
	out := array{dims: dims}
	at := make([]int, len(dims))
	n := 1
	for _, d := range dims {
		n *= d
	}
	for range n {
		a, i := from(slices.Clone(at))
		flat := 0
		for d, k := range i {
			flat = flat*a.dims[d] + k
		}
		if a.ints != nil {
			out.ints = append(out.ints, a.ints[flat])
		} else {
			out.complexes = append(out.complexes, a.complexes[flat])
		}
		for d := len(dims) - 1; d >= 0; d-- {
			if at[d]++; at[d] < dims[d] {
				break
			}
			at[d] = 0
		}
	}
	return out
}

// concat concatenates arrays along a dimension.
func concat(dim int, all ...array) array {
	dims := slices.Clone(all[0].dims)
	size := dims[dim]
	dims[dim] *= len(all)
	return each(dims, func(at []int) (array, []int) {
		k := at[dim] / size
		at[dim] %= size
		return all[k], at
	})
}

// part returns part k of n equal parts along a dimension.
func part(a array, dim, k, n int) array {
	dims := slices.Clone(a.dims)
	dims[dim] /= n
	return each(dims, func(at []int) (array, []int) {
		at[dim] += k * dims[dim]
		return a, at
	})
}

// zeroed returns an array of zeros with the shape of a.
func zeroed(a array) array {
	return array{dims: a.dims, ints: make([]int64, len(a.ints)), complexes: make([]complex128, len(a.complexes))}.normal()
}

func (a array) normal() array {
	if len(a.ints) == 0 {
		a.ints = nil
	}
	if len(a.complexes) == 0 {
		a.complexes = nil
	}
	return a
}

// combined applies op element by element.
func combined(d dtypes.DType, op string, all ...array) array {
	out := array{dims: all[0].dims, ints: slices.Clone(all[0].ints), complexes: slices.Clone(all[0].complexes)}
	for _, a := range all[1:] {
		for i, x := range a.ints {
			y := &out.ints[i]
			less := x < *y
			if unsigned(d) {
				less = uint64(x) < uint64(*y)
			}
			switch {
			case op == "sum":
				*y = rounded(d, *y+x)
			case op == "max" && !less, op == "min" && less:
				*y = x
			}
		}
		for i, x := range a.complexes {
			y := &out.complexes[i]
			switch op {
			case "sum", "mean":
				*y += x
			case "max":
				*y = complex(math.Max(real(*y), real(x)), 0)
			case "min":
				*y = complex(math.Min(real(*y), real(x)), 0)
			}
		}
	}
	if op == "mean" {
		for i := range out.complexes {
			out.complexes[i] /= complex(float64(len(all)), 0)
		}
	}
	return out
}
