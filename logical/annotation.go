package logical

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Kind says which annotation an [Annotation] is.
type Kind int

const (
	// None annotates nothing: the partitioner chooses the placement.
	None Kind = iota
	// KindAssign is the kind of [AssignTo]: one logical device makes the tensor.
	KindAssign
	// KindReplicate is the kind of [Replicated]: every logical device holds a whole copy.
	KindReplicate
	// KindSplit is the kind of [SplitInto] and of [Over]: every logical device holds one part.
	KindSplit
)

// Annotation says which logical devices of a replica hold a tensor, and which part of it. It is the
// value form of TPUStrategy's experimental_assign_to_logical_device,
// experimental_replicate_to_logical_devices and experimental_split_to_logical_devices, and of
// [SplitOver], the split by names. An Annotation is immutable; the zero value annotates nothing.
type Annotation struct {
	kind   Kind
	device int
	parts  []int
	axes   [][]string // of a split by names: one list for each dimension
}

// AssignTo returns the annotation of [Assign]: experimental_assign_to_logical_device. An argument
// or a variable with this annotation is stored whole on every logical device of the replica; use
// [SplitInto] to save memory.
func AssignTo(device int) Annotation { return Annotation{kind: KindAssign, device: device} }

// Replicated returns the annotation of [Replicate]: experimental_replicate_to_logical_devices.
func Replicated() Annotation { return Annotation{kind: KindReplicate} }

// SplitInto returns the annotation of [Split], with the number of parts of each dimension:
// experimental_split_to_logical_devices.
func SplitInto(parts ...int) Annotation {
	return Annotation{kind: KindSplit, parts: slices.Clone(parts)}
}

// Kind returns which annotation this is.
func (a Annotation) Kind() Kind { return a.kind }

// Device returns the logical device of an annotation of kind [KindAssign], and 0 for any other.
func (a Annotation) Device() int { return a.device }

// Parts returns a copy of the numbers of parts, one for each dimension, of an annotation of
// [SplitInto], and nil for any other. [Annotation.PartsOn] has those of a split by names too.
func (a Annotation) Parts() []int { return slices.Clone(a.parts) }

// Equal reports whether two annotations are the same.
func (a Annotation) Equal(b Annotation) bool {
	return a.kind == b.kind && a.device == b.device && slices.Equal(a.parts, b.parts) &&
		(a.axes == nil) == (b.axes == nil) && slices.EqualFunc(a.axes, b.axes, slices.Equal)
}

// Error reports why an annotation does not fit a tensor, or why a region cannot run on a logical
// device.
type Error struct {
	// Op is "assign", "split", "replicate" or "on", or "axes" where the logical axes are at fault.
	Op string
	// Tensor is the tensor's name, or "" if the caller gave none. Shape is the tensor's shape.
	Tensor string
	Shape  []int
	// Dim is the dimension at fault, or -1 if the error is about no dimension.
	Dim int
	// Devices is the number of logical devices of a replica.
	Devices int
	// Reason says what is wrong, and Hint what to write instead.
	Reason, Hint string
	// Err is the cause, if there is one.
	Err error
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Error returns "logical: op tensor of shape: reason: cause; hint".
func (e *Error) Error() string {
	what := "logical: " + e.Op
	if e.Tensor != "" {
		what += fmt.Sprintf(" %q", e.Tensor)
	}
	if e.Shape != nil {
		what += fmt.Sprintf(" of shape %v", e.Shape)
	}
	return errkind.Text(what, e.Reason, e.Err, e.Hint)
}

// Kind returns ValueError.
func (*Error) Kind() errkind.Kind { return errkind.ValueError }

// ValidateOn returns an [*Error] if the annotation does not fit a tensor of the given shape on a
// replica with the given logical axes (see [Mesh]). It checks in TensorFlow's order: for a split
// the rank, then each dimension, then the product of the parts. tensor is the tensor's name for the
// error, or "".
//
// A split may name [ReplicaName] if that is an axis of the mesh: the shape is then that of a
// variable over all replicas.
func (a Annotation) ValidateOn(mesh sharding.Mesh, tensor string, shape []int) error {
	devices := mesh.Size()
	fail := func(op string, dim int, hint, format string, args ...any) error {
		return &Error{
			Op: op, Tensor: tensor, Shape: slices.Clone(shape), Dim: dim, Devices: devices,
			Reason: fmt.Sprintf(format, args...), Hint: hint,
		}
	}
	switch {
	case a.kind == KindAssign && (a.device < 0 || a.device >= devices):
		return fail("assign", -1, fmt.Sprintf("use a number from 0 to %d", devices-1),
			"logical device %d is not one of the replica's %d", a.device, devices)
	case a.kind != KindSplit:
		return nil
	case a.axes != nil && len(a.axes) != len(shape):
		return fail("split", -1, fmt.Sprintf("give %d entries, - for a dimension that stays whole", len(shape)),
			"%q has %d entries for %d dimensions", a, len(a.axes), len(shape))
	case a.axes == nil && len(a.parts) != len(shape):
		return fail("split", -1, fmt.Sprintf("give %d numbers, 1 for a dimension that stays whole", len(shape)),
			"%d parts %v for %d dimensions", len(a.parts), a.parts, len(shape))
	}
	if dim, reason, hint := a.misnamed(mesh); reason != "" {
		return fail("split", dim, hint, "%s", reason)
	}
	product := 1
	for dim, part := range a.PartsOn(mesh) {
		if part < 1 {
			return fail("split", dim, "use 1 for a dimension that stays whole", "dimension %d into %d parts", dim, part)
		}
		if shape[dim]%part != 0 {
			over := ""
			if a.axes != nil {
				over = " (" + sizesText(mesh, a.axes[dim]) + ")"
			}
			return fail("split", dim, fmt.Sprintf("pad the dimension to %d or split another one", (shape[dim]+part-1)/part*part),
				"dimension %d of size %d is not divisible into %d parts%s", dim, shape[dim], part, over)
		}
		product *= part
	}
	if a.axes == nil && product != devices {
		return fail("split", -1, "the parts must multiply to the number of logical devices",
			"parts %v make %d pieces for %d logical devices", a.parts, product, devices)
	}
	return nil
}
