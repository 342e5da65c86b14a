package spmd

import (
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// StableHLO's builder has no Shardy ops, and some ops of ours need to know the whole step before
// they can be written. A trace therefore adds a statement with a mark, which says what was asked
// for, and the writer puts an op in its place, loop bodies included.

// mark is what a statement stands for.
type mark interface {
	// write returns the op that makes out of in.
	write(w *writer, out, in *ir.Value) *ir.Statement
}

// annotationMark asks for a tensor to live where an annotation says.
type annotationMark struct {
	annotation logical.Annotation
	// adjoint: the tensor is an adjoint, whose readers are assigned.
	adjoint bool
	// own: it stands in the step itself, in no closure and no function.
	own bool
}

func (a annotationMark) write(w *writer, out, in *ir.Value) *ir.Statement {
	if w.single() || a.annotation.Kind() == logical.None {
		return unchanged(out, in)
	}
	return w.constrain(out, in, a.annotation)
}

// assigns returns the device of a tensor of the step itself that is made on one.
func (a annotationMark) assigns() (device int, ok bool) {
	return a.annotation.Device(), a.own && a.annotation.Kind() == logical.KindAssign
}

// replicateMark replicates a tensor if the step splits tensors in a grid.
type replicateMark struct{}

func (replicateMark) write(w *writer, out, in *ir.Value) *ir.Statement {
	if w.factors.Divided() < 2 {
		return unchanged(out, in)
	}
	return w.constrain(out, in, logical.Replicated())
}

// zeros asks for zeros of the result's shape, whatever the operand.
type zeros struct{}

func (zeros) write(_ *writer, out, _ *ir.Value) *ir.Statement {
	return constant(out, ir.Float("0.0", 0))
}

// replaced returns statements with ops in the place of the marks that are in them, and with the
// values that others are names of.
func (w *writer) replaced(all ...*ir.Statement) ([]*ir.Statement, error) {
	return ir.Rewrite(all, func(s *ir.Statement) ([]*ir.Statement, error) {
		if m, ok := s.Mark.(mark); ok {
			out, in := s.Results[0], w.canonical(s.Operands[0])
			if c, ok := m.(collectiveMark); ok {
				return w.collectives(c, out, in), nil
			}
			return []*ir.Statement{m.write(w, out, in)}, nil
		}
		if len(w.alias) > 0 {
			s = s.Reading(w.canonical)
		}
		return []*ir.Statement{s}, nil
	})
}

// canonical returns the value that another is a name of.
func (w *writer) canonical(v *ir.Value) *ir.Value {
	if of, ok := w.alias[v]; ok {
		return of
	}
	return v
}
