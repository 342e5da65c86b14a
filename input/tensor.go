package input

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Value is the set of Go types that can be elements of a [Tensor].
type Value interface {
	bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 |
		float16.Float16 | bfloat16.BFloat16 | float32 | float64 | complex64 | complex128 | string
}

// Tensor is an immutable dense host tensor: values of one kind in row-major order. Axis 0 is the
// batch axis, and its entries are the rows.
//
// Tensors share memory (a slice of a batch is a view), so the values of a Tensor must never be
// modified. A Tensor is safe for concurrent use. The zero Tensor is invalid and has kind [Invalid].
type Tensor struct {
	dims []int
	data storage
}

// storage is a flat slice of values, independent of their Go type.
type storage interface {
	kind() Kind
	len() int
	view(start, end int) storage
	zeros(n int) storage
	join(parts []storage, numValues int) storage
	gather(rows []int, rowSize int) storage
	flat() any
	bytes() []byte
}

// typedStorage implements storage. Its methods have pointer receivers, so that the storage of many
// tensors can be allocated at once.
type typedStorage[T Value] []T

func newStorage[T Value](flat []T) storage { return (*typedStorage[T])(&flat) }

func (v *typedStorage[T]) kind() Kind {
	for k := range kinds {
		if _, ok := kinds[k].empty.(*typedStorage[T]); ok {
			return Kind(k)
		}
	}
	return Invalid // unreachable: every T is in kinds
}

func (v *typedStorage[T]) len() int                    { return len(*v) }
func (v *typedStorage[T]) view(start, end int) storage { return newStorage((*v)[start:end:end]) }
func (v *typedStorage[T]) zeros(n int) storage         { return newStorage(make([]T, n)) }
func (v *typedStorage[T]) flat() any                   { return []T(*v) }

func (v *typedStorage[T]) join(parts []storage, n int) storage {
	out := make(typedStorage[T], 0, n)
	for _, p := range parts {
		out = append(out, *p.(*typedStorage[T])...)
	}
	return &out
}

func (v *typedStorage[T]) gather(rows []int, width int) storage {
	out := make(typedStorage[T], 0, len(rows)*width)
	for _, r := range rows {
		out = append(out, (*v)[r*width:(r+1)*width]...)
	}
	return &out
}

func (v *typedStorage[T]) bytes() []byte {
	if len(*v) == 0 || v.kind() == String {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(*v))), len(*v)*int(unsafe.Sizeof((*v)[0])))
}

// NewTensor returns a tensor of the given dimensions with the values of flat, in row-major order.
// The tensor uses flat as its storage: the caller must not modify flat afterwards. Without
// dimensions it returns a scalar.
func NewTensor[T Value](flat []T, dims ...int) (Tensor, error) {
	size, err := numElements(dims)
	if err != nil {
		return Tensor{}, err
	}
	if size != len(flat) {
		return Tensor{}, valueError("make tensor", fmt.Sprintf("give %d", size), "%d values for a tensor of dimensions %v",
			len(flat), dims)
	}
	return Tensor{dims: slices.Clone(dims), data: newStorage(flat)}, nil
}

// Vector returns a rank-1 tensor with the values of flat. The tensor uses flat as its storage: the
// caller must not modify flat afterwards.
func Vector[T Value](flat ...T) Tensor {
	return Tensor{dims: []int{len(flat)}, data: newStorage(flat)}
}

// Scalar returns a rank-0 tensor.
func Scalar[T Value](value T) Tensor { return Tensor{data: newStorage([]T{value})} }

// Zeros returns a tensor of zeros (empty strings for String, false for Bool).
func Zeros(kind Kind, dims ...int) (Tensor, error) {
	if !kind.Valid() {
		return Tensor{}, newFault(errkind.TypeError, "make tensor", "give a kind other than Invalid",
			"no tensor has kind %v", kind)
	}
	size, err := numElements(dims)
	if err != nil {
		return Tensor{}, err
	}
	if size > math.MaxInt/16 { // beyond any address space, where make would panic
		return Tensor{}, newFault(errkind.ResourceExhaustedError, "make tensor", "give smaller dimensions",
			"a tensor of dimensions %v does not fit into memory", dims)
	}
	return Tensor{dims: slices.Clone(dims), data: kinds[kind].empty.zeros(size)}, nil
}

// FromBytes returns a tensor with a copy of data, which contains values in the machine's byte
// order, as [Tensor.Bytes] returns them. A bool is a byte of 0 or 1. The kind String is an error.
func FromBytes(kind Kind, data []byte, dims ...int) (Tensor, error) {
	if kind == String {
		return Tensor{}, newFault(errkind.TypeError, "make tensor", "use NewTensor", "strings cannot be made from raw bytes")
	}
	t, err := Zeros(kind, dims...)
	if err != nil {
		return Tensor{}, err
	}
	if len(data) != t.Len()*kind.Size() {
		return Tensor{}, valueError("make tensor", fmt.Sprintf("give %d", t.Len()*kind.Size()), "%d bytes for %v", len(data),
			t)
	}
	if kind == Bool {
		for i, b := range data {
			if b > 1 {
				return Tensor{}, valueError("make tensor", "give 0 or 1", "byte %d of a bool tensor is %d", i, b)
			}
		}
	}
	copy(t.Bytes(), data)
	return t, nil
}

func numElements(dims []int) (int, error) {
	for axis, d := range dims {
		if d < 0 {
			return 0, valueError("make tensor", "give dimensions from 0", "dimension %d of %v is negative", axis, dims)
		}
	}
	if slices.Contains(dims, 0) {
		return 0, nil
	}
	size := 1
	for _, d := range dims {
		if size > math.MaxInt/d {
			return 0, valueError("make tensor", "give smaller dimensions", "dimensions %v hold more values than an int counts",
				dims)
		}
		size *= d
	}
	return size, nil
}

// IsZero reports whether t is the zero Tensor.
func (t Tensor) IsZero() bool { return t.data == nil }

// Kind returns the element type.
func (t Tensor) Kind() Kind {
	if t.data == nil {
		return Invalid
	}
	return t.data.kind()
}

// DType returns the dtype of GoMLX's compute module. It returns false for strings and the zero Tensor.
func (t Tensor) DType() (dtypes.DType, bool) { return t.Kind().DType() }

// Rank returns the number of axes.
func (t Tensor) Rank() int { return len(t.dims) }

// Dims returns a copy of the dimensions.
func (t Tensor) Dims() []int { return slices.Clone(t.dims) }

// Dim returns the size of an axis, or 0 if there is no such axis.
func (t Tensor) Dim(axis int) int {
	if axis < 0 || axis >= len(t.dims) {
		return 0
	}
	return t.dims[axis]
}

// Len returns the number of values.
func (t Tensor) Len() int {
	if t.data == nil {
		return 0
	}
	return t.data.len()
}

// Flat returns the values as a Go slice of the kind's type ([]float32 for Float32), in row-major
// order. The slice is the tensor's storage, not a copy: do not modify it. The function [Flat]
// returns a typed slice.
func (t Tensor) Flat() any {
	if t.data == nil {
		return nil
	}
	return t.data.flat()
}

// Bytes returns the values as raw bytes in the machine's byte order, for a transfer to a device. It
// returns nil for strings and for empty tensors. The bytes are the tensor's storage: do not modify
// them, and keep the tensor reachable while reading them.
func (t Tensor) Bytes() []byte {
	if t.data == nil {
		return nil
	}
	return t.data.bytes()
}

// Flat returns the values of t as []T, in row-major order. The slice is the tensor's storage, not a
// copy: do not modify it. If t has another kind, Flat returns a TypeError.
func Flat[T Value](t Tensor) ([]T, error) {
	v, ok := t.data.(*typedStorage[T])
	if !ok {
		return nil, newFault(errkind.TypeError, "flat", "ask for the type of its kind", "a %v tensor does not hold %v",
			t.Kind(), new(typedStorage[T]).kind())
	}
	return *v, nil
}

// Spec returns the kind and the dimensions of t.
func (t Tensor) Spec() TensorSpec { return TensorSpec{Kind: t.Kind(), Dims: t.Dims()} }

// Like reports whether t and o have the same kind and dimensions.
func (t Tensor) Like(o Tensor) bool { return t.Kind() == o.Kind() && slices.Equal(t.dims, o.dims) }

// String returns the kind and the dimensions, such as "float32[2 3]".
func (t Tensor) String() string { return t.Spec().String() }

func (t Tensor) rowSize() int {
	w := 1
	for _, d := range t.dims[1:] {
		w *= d
	}
	return w
}

// Rows returns a view of rows start to end-1 of axis 0.
func (t Tensor) Rows(start, end int) (Tensor, error) {
	if len(t.dims) == 0 || start < 0 || end < start || end > t.dims[0] {
		return Tensor{}, valueError("rows", "give rows within axis 0", "no rows %d to %d in a tensor of dimensions %v",
			start, end, t.dims)
	}
	dims := slices.Clone(t.dims)
	dims[0] = end - start
	w := t.rowSize()
	return Tensor{dims: dims, data: t.data.view(start*w, end*w)}, nil
}

// viewRow returns a view of row i without the leading axis. The index must be in range.
func (t Tensor) viewRow(i int) Tensor {
	w := t.rowSize()
	return Tensor{dims: t.dims[1:], data: t.data.view(i*w, (i+1)*w)}
}

// gatherRows copies the rows with the given indices, which must be in range, to a new tensor.
func (t Tensor) gatherRows(rows []int) Tensor {
	dims := slices.Clone(t.dims)
	dims[0] = len(rows)
	return Tensor{dims: dims, data: t.data.gather(rows, t.rowSize())}
}

var errScalars = valueError("join tensors", "batch the scalars first", "scalars have no rows to concatenate")

// joinTensors concatenates tensors along axis 0 or, if stack is set, stacks them along a new axis 0.
func joinTensors(tensors []Tensor, stack bool) (Tensor, error) {
	first := tensors[0]
	if first.data == nil {
		return Tensor{}, valueError("join tensors", "give a value to every component", "the zero tensor has no values")
	}
	tail, rows, size := first.dims, len(tensors), 0
	if !stack {
		if len(first.dims) == 0 {
			return Tensor{}, errScalars
		}
		tail, rows = first.dims[1:], 0
	}
	flat := make([]storage, len(tensors))
	for i, p := range tensors {
		other := p.dims
		if !stack {
			if len(p.dims) == 0 {
				return Tensor{}, errScalars
			}
			other, rows = p.dims[1:], rows+p.dims[0]
		}
		if p.Kind() != first.Kind() || !slices.Equal(other, tail) {
			return Tensor{}, valueError("join tensors", "give the rows of a batch one kind and shape, with Map",
				"tensor %d is %v, the first is %v", i, p, first)
		}
		flat[i], size = p.data, size+p.data.len()
	}
	if len(tensors) == 1 && !stack {
		return first, nil
	}
	return Tensor{dims: append([]int{rows}, tail...), data: first.data.join(flat, size)}, nil
}
