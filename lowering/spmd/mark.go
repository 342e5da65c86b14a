package spmd

import (
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// The StableHLO builder has no Shardy ops, and some ops of this package depend on the whole step. A
// trace therefore adds a placeholder statement with a mark, and the writer replaces it by ops, also
// in loop bodies.

// mark is the meaning of a placeholder statement.
type mark interface {
	// write returns the op that computes out from in.
	write(w *writer, out, in *ir.Value) *ir.Statement
}

// annotationMark is the mark of an annotation.
type annotationMark struct {
	annotation logical.Annotation
	// adjoint is set if the tensor is an adjoint, whose readers are assigned.
	adjoint bool
	// own is set for an annotation in the step itself, outside closures and other functions.
	own bool
}

func (a annotationMark) write(w *writer, out, in *ir.Value) *ir.Statement {
	if w.single() || a.annotation.Kind() == logical.None {
		return unchanged(out, in)
	}
	return w.constrain(out, in, a.annotation)
}

// assigns returns the device of an assigned tensor of the step itself.
func (a annotationMark) assigns() (device int, ok bool) {
	return a.annotation.Device(), a.own && a.annotation.Kind() == logical.KindAssign
}

// replicateMark replicates a tensor if the step splits tensors over two or more logical axes.
type replicateMark struct{}

func (replicateMark) write(w *writer, out, in *ir.Value) *ir.Statement {
	if w.factors.Divided() < 2 {
		return unchanged(out, in)
	}
	return w.constrain(out, in, logical.Replicated())
}

// zeros is the mark of zeros with the result's shape. It ignores its operand.
type zeros struct{}

func (zeros) write(_ *writer, out, _ *ir.Value) *ir.Statement {
	return constant(out, ir.Float("0.0", 0))
}

// replaced returns the statements with each mark replaced by its ops and each alias by the value it
// refers to.
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

// canonical returns the value that v is an alias of, or v.
func (w *writer) canonical(v *ir.Value) *ir.Value {
	if of, ok := w.alias[v]; ok {
		return of
	}
	return v
}
