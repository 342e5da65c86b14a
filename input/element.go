package input

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Element is one element of a dataset: a nest of host tensors. A batch is an element whose tensors
// contain the rows of the batch along axis 0.
type Element = Nest[Tensor]

// Unknown means that a dimension, a batch size or a count is not known before the data is read.
const Unknown = -1

// TensorSpec is the kind and the dimensions of a tensor, like tf.TensorSpec. The size of a
// dimension that is [Unknown] may differ between elements.
type TensorSpec struct {
	Kind Kind
	Dims []int
}

// Spec describes the elements of a dataset, like tf.data's element_spec. The zero Spec means that
// nothing is known about the elements.
type Spec = Nest[TensorSpec]

// Static reports whether all dimensions are known.
func (s TensorSpec) Static() bool {
	return !slices.ContainsFunc(s.Dims, func(d int) bool { return d < 0 })
}

// String returns the kind and the dimensions, such as "int64[? 3]".
func (s TensorSpec) String() string {
	dims := make([]string, len(s.Dims))
	for i, d := range s.Dims {
		dims[i] = "?"
		if d >= 0 {
			dims[i] = fmt.Sprint(d)
		}
	}
	return s.Kind.String() + "[" + strings.Join(dims, " ") + "]"
}

// Equal reports whether both specs have the same kind and dimensions.
func (s TensorSpec) Equal(o TensorSpec) bool { return s.Kind == o.Kind && slices.Equal(s.Dims, o.Dims) }

// SpecOf returns the spec of one element, with all dimensions known.
func SpecOf(e Element) Spec {
	spec, _ := MapNest(e, func(_ string, t Tensor) (TensorSpec, error) { return t.Spec(), nil })
	return spec
}

// checkSpec returns an error if e does not match spec. The zero spec accepts every element.
func checkSpec(spec Spec, e Element) error {
	if spec.IsZero() {
		return nil
	}
	if !sameStructure(spec, e) {
		return valueError("check element", "give the Spec of the elements, or none",
			"element %v does not have the structure of the spec %v", e, spec)
	}
	want, actual, paths := spec.Leaves(), e.Leaves(), spec.Paths()
	for i := range want {
		ok := want[i].Kind == actual[i].Kind() && len(want[i].Dims) == actual[i].Rank()
		for axis := 0; ok && axis < len(want[i].Dims); axis++ {
			ok = want[i].Dims[axis] < 0 || want[i].Dims[axis] == actual[i].dims[axis]
		}
		if !ok {
			return valueError("check element", "give the Spec of the elements, or none",
				"component %q is %v, but the spec is %v",
				paths[i], actual[i], want[i])
		}
	}
	return nil
}

// mapDims returns a copy of spec in which f has transformed the dimensions of every component.
func mapDims(spec Spec, f func(dims []int) []int) Spec {
	out, _ := MapNest(spec, func(_ string, s TensorSpec) (TensorSpec, error) {
		return TensorSpec{Kind: s.Kind, Dims: f(slices.Clone(s.Dims))}, nil
	})
	return out
}

// mergeSpecs returns a spec that matches the elements of both specs. A dimension whose size differs
// between the specs is Unknown in the result. mergeSpecs returns false if the structures, kinds or
// ranks differ.
func mergeSpecs(a, b Spec) (Spec, bool) {
	if !sameStructure(a, b) {
		return Spec{}, false
	}
	left, right := a.Leaves(), b.Leaves()
	out := make([]TensorSpec, len(left))
	for i := range left {
		if left[i].Kind != right[i].Kind || len(left[i].Dims) != len(right[i].Dims) {
			return Spec{}, false
		}
		dims := slices.Clone(left[i].Dims)
		for axis := range dims {
			if dims[axis] != right[i].Dims[axis] {
				dims[axis] = Unknown
			}
		}
		out[i] = TensorSpec{Kind: left[i].Kind, Dims: dims}
	}
	return unflatten(a, out), true
}

func isStaticSpec(spec Spec) bool {
	return !spec.IsZero() && !slices.ContainsFunc(spec.Leaves(), func(s TensorSpec) bool { return !s.Static() })
}

// leadingDim returns the size of axis 0 if it is known and equal in all components, or Unknown.
func leadingDim(spec Spec) int {
	out := Unknown
	for i, s := range spec.Leaves() {
		if len(s.Dims) == 0 || s.Dims[0] < 0 || i > 0 && s.Dims[0] != out {
			return Unknown
		}
		out = s.Dims[0]
	}
	return out
}

// emptyBatch returns an element whose axis 0 and unknown dimensions have size 0.
func emptyBatch(spec Spec) (Element, error) {
	return MapNest(spec, func(_ string, s TensorSpec) (Tensor, error) {
		dims := slices.Clone(s.Dims)
		for i, d := range dims {
			if i == 0 || d < 0 {
				dims[i] = 0
			}
		}
		return Zeros(s.Kind, dims...)
	})
}

// numRows returns the number of rows of e. It returns an error if the components have different
// numbers of rows or no batch axis.
func numRows(e Element) (int, error) {
	rows, paths := -1, e.Paths()
	for i, t := range e.Leaves() {
		if t.Rank() == 0 {
			return -1, notBatchedError(paths[i], t.Spec())
		}
		if rows >= 0 && t.dims[0] != rows {
			return -1, valueError("count rows", "give all components the same batch size",
				"component %q has %d rows, %q has %d", paths[0], rows, paths[i], t.dims[0])
		}
		rows = t.dims[0]
	}
	if rows < 0 {
		return -1, valueError("count rows", "give an element with at least one tensor", "element %v has no tensors", e)
	}
	return rows, nil
}

// sliceRows returns a view of rows start to end-1 of every component. Both limits are clamped to
// the component's number of rows.
func sliceRows(e Element, start, end int) (Element, error) {
	return MapNest(e, func(path string, t Tensor) (Tensor, error) {
		if t.Rank() == 0 {
			return Tensor{}, notBatchedError(path, t.Spec())
		}
		return t.Rows(min(start, t.dims[0]), min(end, t.dims[0]))
	})
}

// joinElements concatenates the components of the elements along axis 0 or, if stack is set, stacks
// them along a new axis 0. There must be at least one element.
func joinElements(elements []Element, stack bool) (Element, error) {
	first := elements[0]
	columns := make([][]Tensor, len(first.Leaves()))
	for i, e := range elements {
		if i > 0 && !sameStructure(first, e) {
			return Element{}, valueError("join elements", "give all elements one structure, with Map",
				"element %v does not have the structure of the batch's first, %v", e, first)
		}
		for c, t := range e.Leaves() {
			columns[c] = append(columns[c], t)
		}
	}
	joined, paths := make([]Tensor, len(columns)), first.Paths()
	for c, column := range columns {
		t, err := joinTensors(column, stack)
		if err != nil {
			return Element{}, wrapError("join elements", fmt.Sprintf("component %q", paths[c]), err)
		}
		joined[c] = t
	}
	return unflatten(first, joined), nil
}

// ErrNotBatched matches errors for a component without a batch axis in an operation on rows, such
// as splitting a batch between replicas.
var ErrNotBatched = errkind.New(errkind.ValueError, "input: no batch axis")

// notBatchedError returns an error that matches ErrNotBatched for the component at path. The path
// of a single tensor is "".
func notBatchedError(path string, spec TensorSpec) error {
	return &errkind.Fault{Op: "input", Reason: fmt.Sprintf("component %q (%v) has no batch axis to take rows from", path,
		spec), Match: ErrNotBatched,
		Hint: "make batches with Batch first, of the global batch size where replicas share them"}
}
