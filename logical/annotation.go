package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Kind tells the annotations apart.
type Kind int

const (
	// None leaves the placement to the partitioner.
	None Kind = iota
	// KindAssign makes the tensor on one logical device. An argument or a variable of a
	// step is stored whole on every logical device all the same.
	KindAssign
	// KindReplicate keeps a whole copy on every logical device.
	KindReplicate
	// KindSplit cuts dimensions into parts, one a logical device.
	KindSplit
)

// Annotation says where a tensor lives among the logical devices of a replica.
// It is an immutable value; the zero value annotates nothing.
type Annotation struct {
	kind   Kind
	device int
	parts  []int
}

// AssignTo is the annotation of [Assign]. An argument or a variable that it annotates
// is stored whole on every logical device of the replica: memory is saved by
// [SplitInto].
func AssignTo(device int) Annotation { return Annotation{kind: KindAssign, device: device} }

// Replicated is the annotation of [Replicate].
func Replicated() Annotation { return Annotation{kind: KindReplicate} }

// SplitInto is the annotation of [Split]: one count of parts a dimension.
func SplitInto(parts ...int) Annotation {
	return Annotation{kind: KindSplit, parts: slices.Clone(parts)}
}

// Kind returns which annotation this is.
func (a Annotation) Kind() Kind { return a.kind }

// Device returns the logical device of an Assign, otherwise 0.
func (a Annotation) Device() int { return a.device }

// Parts returns a copy of the parts of a Split, one a dimension, otherwise nil.
func (a Annotation) Parts() []int { return slices.Clone(a.parts) }

// Equal reports whether two annotations are the same.
func (a Annotation) Equal(b Annotation) bool {
	return a.kind == b.kind && a.device == b.device && slices.Equal(a.parts, b.parts)
}

// String prints the annotation as it is written: split(1, 2), assign(0),
// replicate, or none.
func (a Annotation) String() string {
	switch a.kind {
	case KindAssign:
		return fmt.Sprintf("assign(%d)", a.device)
	case KindReplicate:
		return "replicate"
	case KindSplit:
		parts := make([]string, len(a.parts))
		for i, p := range a.parts {
			parts[i] = fmt.Sprint(p)
		}
		return "split(" + strings.Join(parts, ", ") + ")"
	}
	return "none"
}

// Error says why an annotation does not fit a tensor.
type Error struct {
	// Op is "assign", "split", "replicate" or "on".
	Op string
	// Tensor names the tensor, if the caller gave it a name, and Shape is its
	// shape.
	Tensor string
	Shape  []int
	// Dim is the dimension at fault, or -1.
	Dim int
	// Devices is the number of logical devices of a replica.
	Devices int
	// Reason says what is wrong, Hint what to write instead.
	Reason, Hint string
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "logical: %s", e.Op)
	if e.Tensor != "" {
		fmt.Fprintf(&b, " %q", e.Tensor)
	}
	if e.Shape != nil {
		fmt.Fprintf(&b, " of shape %v", e.Shape)
	}
	fmt.Fprintf(&b, ": %s", e.Reason)
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	return b.String()
}

// Kind is ValueError.
func (*Error) Kind() errkind.Kind { return errkind.ValueError }

// Validate checks the annotation against a tensor of the given shape on a replica
// of devices logical devices. The order of the checks is TensorFlow's: for a
// split the rank, then each dimension, then the product of the parts.
func (a Annotation) Validate(tensor string, shape []int, devices int) error {
	fail := func(op string, dim int, hint, format string, args ...any) error {
		return &Error{
			Op: op, Tensor: tensor, Shape: slices.Clone(shape), Dim: dim, Devices: devices,
			Reason: fmt.Sprintf(format, args...), Hint: hint,
		}
	}
	switch a.kind {
	case KindAssign:
		if a.device < 0 || a.device >= devices {
			return fail("assign", -1, fmt.Sprintf("use a number from 0 to %d", devices-1),
				"logical device %d is not one of the replica's %d", a.device, devices)
		}
	case KindSplit:
		if len(a.parts) != len(shape) {
			return fail("split", -1, fmt.Sprintf("give %d numbers, 1 for a dimension that stays whole", len(shape)),
				"%d parts %v for %d dimensions", len(a.parts), a.parts, len(shape))
		}
		product := 1
		for dim, part := range a.parts {
			if part < 1 {
				return fail("split", dim, "use 1 for a dimension that stays whole",
					"dimension %d into %d parts", dim, part)
			}
			if shape[dim]%part != 0 {
				return fail("split", dim, fmt.Sprintf("pad the dimension to %d or split another one", (shape[dim]+part-1)/part*part),
					"dimension %d of size %d is not divisible into %d parts", dim, shape[dim], part)
			}
			product *= part
		}
		if product != devices {
			return fail("split", -1, "the parts must multiply to the number of logical devices",
				"parts %v make %d pieces for %d logical devices", a.parts, product, devices)
		}
	}
	return nil
}
