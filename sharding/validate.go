package sharding

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Problem is the kind of a [SpecError].
type Problem int

// The problems that [Spec.Validate] reports.
const (
	// UnknownAxis means that the spec names an axis that the mesh does not have.
	UnknownAxis Problem = iota + 1
	// RepeatedAxis means that the spec uses an axis more than once.
	RepeatedAxis
	// RankMismatch means that the spec and the tensor have different ranks.
	RankMismatch
	// Indivisible means that the axes do not divide the dimension.
	Indivisible
	// NegativeSize means that the tensor has a negative dimension.
	NegativeSize
	// InvalidEntry means that an argument of [P] has an unsupported type.
	InvalidEntry
)

// String returns the name of the problem, such as "unknown axis".
func (p Problem) String() string {
	return enum.Name(p, "", "unknown axis", "repeated axis", "rank mismatch", "indivisible", "negative size",
		"invalid entry")
}

// SpecError reports one problem of a [Spec] on a mesh and a tensor. Use [errors.As] to find the
// first SpecError of an error, and [SpecErrors] to find all.
type SpecError struct {
	Problem  Problem
	Tensor   string // name of the tensor, or ""
	Dim      int    // tensor dimension, or -1 if the problem concerns no single dimension
	DimSize  int    // size of the dimension
	Axis     string // mesh axis, or several axes joined by ", "
	AxisSize int    // size of the axis, or the product of several sizes
	Hint     string // suggested correction
}

// Error returns the problem and the suggested correction in one line.
func (e *SpecError) Error() string {
	subject := "sharding"
	if e.Tensor != "" {
		subject += fmt.Sprintf(": tensor %q", e.Tensor)
	}
	if e.Dim >= 0 {
		subject += fmt.Sprintf(": dimension %d", e.Dim)
	}
	reason := e.Problem.String()
	switch e.Problem {
	case UnknownAxis:
		reason = fmt.Sprintf("the mesh has no axis %q", e.Axis)
	case RepeatedAxis:
		reason = fmt.Sprintf("axis %q is used more than once", e.Axis)
	case Indivisible:
		reason = fmt.Sprintf("size %d is not divisible by %d (axes %s)", e.DimSize, e.AxisSize, e.Axis)
	case NegativeSize:
		reason = fmt.Sprintf("size %d is negative", e.DimSize)
	}
	return errkind.Format(subject, reason, nil, e.Hint)
}

// Kind returns ValueError.
func (*SpecError) Kind() errkind.Kind { return errkind.ValueError }

// SpecErrors returns every [*SpecError] in the tree of err, in order.
func SpecErrors(err error) []*SpecError {
	switch e := err.(type) {
	case nil:
		return nil
	case *SpecError:
		return []*SpecError{e}
	case interface{ Unwrap() []error }:
		var all []*SpecError
		for _, inner := range e.Unwrap() {
			all = append(all, SpecErrors(inner)...)
		}
		return all
	default:
		return SpecErrors(errors.Unwrap(err))
	}
}

// Validate checks whether a tensor of the given shape can be split over the mesh as the spec
// describes. The error joins one [*SpecError] for each problem: an unknown or repeated axis, a
// different rank, or a dimension that its axes do not divide. Any axes divide a dimension of size
// 0.
func (s Spec) Validate(mesh Mesh, shape []int) error {
	return s.ValidateTensor(mesh, "", shape)
}

// ValidateTensor is like [Spec.Validate] but includes the name of the tensor in the errors.
func (s Spec) ValidateTensor(mesh Mesh, tensor string, shape []int) error {
	v := specValidator{spec: s, mesh: mesh, tensor: tensor}
	v.checkEntries()
	v.checkAxes()
	if len(shape) != len(s.dims) {
		v.addError(SpecError{Problem: RankMismatch, Dim: -1, Hint: fmt.Sprintf(
			"%q has rank %d, but the tensor's shape %v has rank %d; write %s",
			s, len(s.dims), shape, len(shape), s.rankHint(len(shape)))})
	}
	for i, size := range shape {
		v.checkDim(i, size)
	}
	return errors.Join(v.problems...)
}

// rankHint returns the text of the spec with the given rank, as a suggestion for an error. It
// removes or adds dimensions at the end.
func (s Spec) rankHint(rank int) string {
	fitted := s.WithRank(rank)
	fitted.dims = fitted.dims[:rank]
	return fitted.String()
}

// validateAxes checks the spec against the mesh, without a shape.
func (s Spec) validateAxes(mesh Mesh) error {
	v := specValidator{spec: s, mesh: mesh}
	v.checkEntries()
	v.checkAxes()
	return errors.Join(v.problems...)
}

type specValidator struct {
	spec     Spec
	mesh     Mesh
	tensor   string
	problems []error
}

func (v *specValidator) addError(e SpecError) {
	e.Tensor = v.tensor
	v.problems = append(v.problems, &e)
}

func (v *specValidator) checkEntries() {
	var bad *SpecError
	if errors.As(v.spec.err, &bad) {
		v.addError(*bad)
	}
}

func (v *specValidator) checkAxes() {
	var seen []string
	check := func(dim int, axes []string) {
		for _, name := range axes {
			size, ok := v.mesh.AxisSize(name)
			switch {
			case !ok:
				v.addError(SpecError{Problem: UnknownAxis, Dim: dim, Axis: name,
					Hint: fmt.Sprintf("the axes are %v", v.mesh)})
			case slices.Contains(seen, name):
				v.addError(SpecError{Problem: RepeatedAxis, Dim: dim, Axis: name, AxisSize: size,
					Hint: "use each axis only once in a spec"})
			}
			seen = append(seen, name)
		}
	}
	for i, dim := range v.spec.dims {
		check(i, dim.Axes)
	}
	check(-1, v.spec.replicated)
}

func (v *specValidator) checkDim(i, size int) {
	if size < 0 {
		v.addError(SpecError{Problem: NegativeSize, Dim: i, DimSize: size, Hint: "pass the static size"})
		return
	}
	if i >= len(v.spec.dims) {
		return
	}
	axes := v.spec.dims[i].Axes
	shards := 1
	for _, name := range axes {
		axisSize, ok := v.mesh.AxisSize(name)
		if !ok || shards > (1<<31)/axisSize {
			return // checkAxes reports the unknown or repeated axis
		}
		shards *= axisSize
	}
	if size%shards != 0 {
		v.addError(SpecError{Problem: Indivisible, Dim: i, DimSize: size,
			Axis: strings.Join(axes, ", "), AxisSize: shards,
			Hint: fmt.Sprintf("pad the dimension to %d, or do not split it (-)", roundUp(size, shards))})
	}
}

func roundUp(size, multiple int) int { return (size + multiple - 1) / multiple * multiple }
