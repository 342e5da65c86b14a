package logical

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Kind is the kind of an [Annotation].
type Kind int

const (
	// KindNone is the kind of the zero Annotation: the partitioner chooses the placement.
	KindNone Kind = iota
	// KindAssign is the kind of [AssignTo]: one logical device computes the tensor.
	KindAssign
	// KindReplicate is the kind of [Replicated]: every logical device holds the complete tensor.
	KindReplicate
	// KindSplit is the kind of [SplitInto] and [SplitOverAxes]: every logical device holds one
	// shard of the tensor.
	KindSplit
)

// Annotation describes how a tensor is placed on the logical devices of a replica. The functions
// [Assign], [Replicate], [Split] and [SplitOver] place a node of a graph in the same ways. An
// Annotation is immutable. The zero value is no annotation.
type Annotation struct {
	kind   Kind
	device int
	parts  []int
	axes   [][]string // the axes of each dimension, for a split over named axes
}

// AssignTo returns an annotation that assigns a tensor to a logical device, like [Assign] and
// TensorFlow's experimental_assign_to_logical_device. An argument or variable with this annotation
// is stored completely on every logical device of the replica; use [SplitInto] or [SplitOverAxes]
// to save memory.
func AssignTo(device int) Annotation { return Annotation{kind: KindAssign, device: device} }

// Replicated returns an annotation that keeps a copy of a tensor on every logical device, like
// [Replicate] and TensorFlow's experimental_replicate_to_logical_devices.
func Replicated() Annotation { return Annotation{kind: KindReplicate} }

// SplitInto returns an annotation that splits dimension i of a tensor into parts[i] shards, like
// [Split] and TensorFlow's experimental_split_to_logical_devices.
func SplitInto(parts ...int) Annotation {
	return Annotation{kind: KindSplit, parts: slices.Clone(parts)}
}

// Kind returns the kind of the annotation.
func (a Annotation) Kind() Kind { return a.kind }

// Device returns the logical device of an annotation of kind [KindAssign], and 0 for any other
// kind.
func (a Annotation) Device() int { return a.device }

// Parts returns a copy of the numbers of shards passed to [SplitInto], one for each dimension, or
// nil for any other annotation. [Annotation.PartsOn] also supports splits over named axes.
func (a Annotation) Parts() []int { return slices.Clone(a.parts) }

// Equal reports whether two annotations have the same kind and the same arguments.
func (a Annotation) Equal(b Annotation) bool {
	return a.kind == b.kind && a.device == b.device && slices.Equal(a.parts, b.parts) &&
		(a.axes == nil) == (b.axes == nil) && slices.EqualFunc(a.axes, b.axes, slices.Equal)
}

// Error reports an annotation that does not fit a tensor, an invalid call of [OnDevice], or invalid
// logical axes.
type Error struct {
	// Op is "assign", "split", "replicate", "on" or, for invalid logical axes, "axes".
	Op string
	// Tensor is the name of the tensor, or "" if it is not known. Shape is its shape.
	Tensor string
	Shape  []int
	// Dim is the dimension that caused the error, or -1 if the error concerns no single dimension.
	Dim int
	// Devices is the number of logical devices of a replica.
	Devices int
	// Reason describes the problem, and Hint the correction.
	Reason, Hint string
	// Err is the cause, or nil.
	Err error
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Error returns the message in the form "logical: op tensor of shape: reason: cause; hint".
func (e *Error) Error() string {
	subject := "logical: " + e.Op
	if e.Tensor != "" {
		subject += fmt.Sprintf(" %q", e.Tensor)
	}
	if e.Shape != nil {
		subject += fmt.Sprintf(" of shape %v", e.Shape)
	}
	return errkind.Format(subject, e.Reason, e.Err, e.Hint)
}

// Kind returns ValueError.
func (*Error) Kind() errkind.Kind { return errkind.ValueError }

// ValidateOn returns an [*Error] if the annotation does not fit a tensor of the given shape on a
// replica with the given logical axes (see [NewMesh]). For a split it checks the rank, then each
// dimension, then the total number of shards, as TensorFlow does. tensor is the name of the tensor
// in the error and may be "".
//
// A split may name the axis [ReplicaAxis] if the mesh has it. In this case, shape is the complete
// shape of a variable that is sharded over the replicas.
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
			"there is no logical device %d in a replica of %d devices", a.device, devices)
	case a.kind != KindSplit:
		return nil
	case a.axes != nil && len(a.axes) != len(shape):
		return fail("split", -1, fmt.Sprintf("write %d entries, with - for a dimension that is not split", len(shape)),
			"%q has %d entries for %d dimensions", a, len(a.axes), len(shape))
	case a.axes == nil && len(a.parts) != len(shape):
		return fail("split", -1, fmt.Sprintf("pass %d numbers, with 1 for a dimension that is not split", len(shape)),
			"%d parts %v for %d dimensions", len(a.parts), a.parts, len(shape))
	}
	if dim, reason, hint := a.checkAxisNames(mesh); reason != "" {
		return fail("split", dim, hint, "%s", reason)
	}
	product := 1
	for dim, part := range a.PartsOn(mesh) {
		if part < 1 {
			return fail("split", dim, "use 1 for a dimension that is not split", "dimension %d is split into %d parts", dim,
				part)
		}
		if shape[dim]%part != 0 {
			axes := ""
			if a.axes != nil {
				axes = " (" + formatAxisSizes(mesh, a.axes[dim]) + ")"
			}
			padded := (shape[dim] + part - 1) / part * part
			return fail("split", dim, fmt.Sprintf("pad the dimension to %d or split another one", padded),
				"dimension %d of size %d is not divisible into %d parts%s", dim, shape[dim], part, axes)
		}
		product *= part
	}
	if a.axes == nil && product != devices {
		return fail("split", -1, "the product of the parts must be the number of logical devices",
			"the product of the parts %v is %d, but there are %d logical devices", a.parts, product, devices)
	}
	return nil
}
