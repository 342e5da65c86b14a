package input

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// Value is the set of Go types a [Tensor] can hold.
type Value interface {
	bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 |
		float16.Float16 | bfloat16.BFloat16 | float32 | float64 | complex64 | complex128 | string
}

// Tensor is an immutable dense host tensor: values of one kind in row-major order, the leftmost axis outermost. Axis 0
// is the batch axis wherever this package speaks of rows.
//
// Tensors share storage freely (a slice of a batch is a view), so nobody may write to the values behind one. Any number
// of goroutines may use a Tensor. The zero Tensor is invalid and has kind [Invalid].
type Tensor struct {
	dims []int
	data storage
}

// storage is a flat slice of one Go type, seen without that type.
type storage interface {
	kind() Kind
	len() int
	view(from, to int) storage
	zeros(n int) storage
	join(parts []storage, n int) storage
	gather(rows []int, width int) storage
	flat() any
	bytes() []byte
}

type values[T Value] []T

func (v values[T]) kind() Kind {
	var zero T
	switch any(zero).(type) {
	case bool:
		return Bool
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case float16.Float16:
		return Float16
	case bfloat16.BFloat16:
		return BFloat16
	case float32:
		return Float32
	case float64:
		return Float64
	case complex64:
		return Complex64
	case complex128:
		return Complex128
	default:
		return String
	}
}

func (v values[T]) len() int                  { return len(v) }
func (v values[T]) view(from, to int) storage { return v[from:to:to] }
func (v values[T]) zeros(n int) storage       { return make(values[T], n) }
func (v values[T]) flat() any                 { return []T(v) }

func (v values[T]) join(parts []storage, n int) storage {
	out := make(values[T], 0, n)
	for _, p := range parts {
		out = append(out, p.(values[T])...)
	}
	return out
}

func (v values[T]) gather(rows []int, width int) storage {
	out := make(values[T], 0, len(rows)*width)
	for _, r := range rows {
		out = append(out, v[r*width:(r+1)*width]...)
	}
	return out
}

func (v values[T]) bytes() []byte {
	if len(v) == 0 || v.kind() == String {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(v[0])))
}

// NewTensor makes a tensor of the given dimensions over flat, which it keeps: the caller must not write to it any more.
// No dimensions make a scalar, from one value.
func NewTensor[T Value](flat []T, dims ...int) (Tensor, error) {
	size, err := sizeOf(dims)
	if err != nil {
		return Tensor{}, err
	}
	if size != len(flat) {
		return Tensor{}, fmt.Errorf("input: %d values do not fill a tensor of dimensions %v, which holds %d", len(flat), dims, size)
	}
	return Tensor{dims: slices.Clone(dims), data: values[T](flat)}, nil
}

// Vector makes a rank-1 tensor over flat, which it keeps.
func Vector[T Value](flat ...T) Tensor {
	return Tensor{dims: []int{len(flat)}, data: values[T](flat)}
}

// Scalar makes a rank-0 tensor.
func Scalar[T Value](value T) Tensor { return Tensor{data: values[T]{value}} }

// Zeros makes a tensor of zeros (empty strings, false).
func Zeros(kind Kind, dims ...int) (Tensor, error) {
	if !kind.Valid() {
		return Tensor{}, fmt.Errorf("input: no tensor has kind %v", kind)
	}
	size, err := sizeOf(dims)
	if err != nil {
		return Tensor{}, err
	}
	if size > math.MaxInt/16 { // beyond any address space, where make would panic
		return Tensor{}, fmt.Errorf("input: a tensor of dimensions %v does not fit into memory", dims)
	}
	return Tensor{dims: slices.Clone(dims), data: kinds[kind].empty.zeros(size)}, nil
}

// FromBytes makes a tensor from a copy of raw values in the machine's byte order, such as [Tensor.Bytes] gives. Strings
// have no such form; a bool is a byte of 0 or 1.
func FromBytes(kind Kind, data []byte, dims ...int) (Tensor, error) {
	if kind == String {
		return Tensor{}, fmt.Errorf("input: strings cannot be made from raw bytes")
	}
	t, err := Zeros(kind, dims...)
	if err != nil {
		return Tensor{}, err
	}
	if len(data) != t.Len()*kind.Size() {
		return Tensor{}, fmt.Errorf("input: %d bytes do not fill %v, which has %d", len(data), t, t.Len()*kind.Size())
	}
	if kind == Bool {
		for i, b := range data {
			if b > 1 {
				return Tensor{}, fmt.Errorf("input: byte %d is %d, a bool is 0 or 1", i, b)
			}
		}
	}
	copy(t.Bytes(), data)
	return t, nil
}

func sizeOf(dims []int) (int, error) {
	for axis, d := range dims {
		if d < 0 {
			return 0, fmt.Errorf("input: dimension %d of %v is negative", axis, dims)
		}
	}
	if slices.Contains(dims, 0) {
		return 0, nil
	}
	size := 1
	for _, d := range dims {
		if size > math.MaxInt/d {
			return 0, fmt.Errorf("input: dimensions %v hold more values than an int counts", dims)
		}
		size *= d
	}
	return size, nil
}

// IsZero reports whether t is the zero Tensor, which holds nothing.
func (t Tensor) IsZero() bool { return t.data == nil }

// Kind is the element type.
func (t Tensor) Kind() Kind {
	if t.data == nil {
		return Invalid
	}
	return t.data.kind()
}

// Rank is the number of axes.
func (t Tensor) Rank() int { return len(t.dims) }

// Dims returns a copy of the dimensions.
func (t Tensor) Dims() []int { return slices.Clone(t.dims) }

// Dim is the size of one axis, 0 where there is no such axis.
func (t Tensor) Dim(axis int) int {
	if axis < 0 || axis >= len(t.dims) {
		return 0
	}
	return t.dims[axis]
}

// Len is the number of values.
func (t Tensor) Len() int {
	if t.data == nil {
		return 0
	}
	return t.data.len()
}

// Flat returns the values as a Go slice of the kind's type ([]float32 for Float32), in row-major order. It is the
// storage itself, not a copy: read only.
func (t Tensor) Flat() any {
	if t.data == nil {
		return nil
	}
	return t.data.flat()
}

// Bytes views the values as bytes in the machine's order, for a transfer to a device; nil for strings and for empty
// tensors. It is the storage itself: read only, valid as long as the tensor is reachable.
func (t Tensor) Bytes() []byte {
	if t.data == nil {
		return nil
	}
	return t.data.bytes()
}

// Flat returns the values of t as []T, without a copy: read only.
func Flat[T Value](t Tensor) ([]T, error) {
	v, ok := t.data.(values[T])
	if !ok {
		return nil, fmt.Errorf("input: a %v tensor does not hold %v", t.Kind(), values[T]{}.kind())
	}
	return v, nil
}

// Spec describes t with all dimensions known.
func (t Tensor) Spec() TensorSpec { return TensorSpec{Kind: t.Kind(), Dims: t.Dims()} }

// Like reports whether t has the kind and the dimensions of o.
func (t Tensor) Like(o Tensor) bool { return t.Kind() == o.Kind() && slices.Equal(t.dims, o.dims) }

// String gives kind and dimensions, such as "float32[2 3]".
func (t Tensor) String() string { return t.Spec().String() }

// width is the number of values in one row.
func (t Tensor) width() int {
	w := 1
	for _, d := range t.dims[1:] {
		w *= d
	}
	return w
}

// Rows returns the view of rows from to to-1 along axis 0, sharing storage.
func (t Tensor) Rows(from, to int) (Tensor, error) {
	if len(t.dims) == 0 || from < 0 || to < from || to > t.dims[0] {
		return Tensor{}, fmt.Errorf("input: no rows %d to %d in a tensor of dimensions %v", from, to, t.dims)
	}
	dims := slices.Clone(t.dims)
	dims[0] = to - from
	w := t.width()
	return Tensor{dims: dims, data: t.data.view(from*w, to*w)}, nil
}

// row returns row i without its leading axis. The index must be in range.
func (t Tensor) row(i int) Tensor {
	w := t.width()
	return Tensor{dims: t.dims[1:], data: t.data.view(i*w, (i+1)*w)}
}

// gather copies the rows of the given numbers into a tensor of their own. The numbers must be in range.
func (t Tensor) gather(rows []int) Tensor {
	dims := slices.Clone(t.dims)
	dims[0] = len(rows)
	return Tensor{dims: dims, data: t.data.gather(rows, t.width())}
}

// join concatenates tensors along axis 0 (stack false), or puts them side by side on a new axis 0 (stack true).
func join(parts []Tensor, stack bool) (Tensor, error) {
	first := parts[0]
	if first.data == nil {
		return Tensor{}, fmt.Errorf("input: the zero tensor cannot be batched")
	}
	tail, rows, size := first.dims, len(parts), 0
	if !stack {
		if len(first.dims) == 0 {
			return Tensor{}, fmt.Errorf("input: scalars have no rows to concatenate")
		}
		tail, rows = first.dims[1:], 0
	}
	flat := make([]storage, len(parts))
	for i, p := range parts {
		other := p.dims
		if !stack {
			if len(p.dims) == 0 {
				return Tensor{}, fmt.Errorf("input: scalars have no rows to concatenate")
			}
			other, rows = p.dims[1:], rows+p.dims[0]
		}
		if p.Kind() != first.Kind() || !slices.Equal(other, tail) {
			return Tensor{}, fmt.Errorf("input: tensor %d of a batch is %v, the first is %v: rows of one batch have one kind and shape", i, p, first)
		}
		flat[i], size = p.data, size+p.data.len()
	}
	if len(parts) == 1 && !stack {
		return first, nil
	}
	return Tensor{dims: append([]int{rows}, tail...), data: first.data.join(flat, size)}, nil
}
