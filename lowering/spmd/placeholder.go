package spmd

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// The StableHLO builder has no Shardy ops, and the lowering of some ops of this package depends on
// the complete step. A trace therefore adds placeholders, which the assembler replaces by ops.

// placeholder describes an op that can only be lowered after the complete step was traced. The
// assembler then calls lower.
type placeholder interface {
	// lower returns the op that computes out from in.
	lower(w *assembler, out, in *ir.Value) *ir.Statement
}

// expandedPlaceholder is like placeholder, but describes several ops, or ops that depend on the
// target.
type expandedPlaceholder interface {
	// expand returns the ops that compute out from in.
	expand(w *assembler, out, in *ir.Value) ([]*ir.Statement, error)
}

type annotationPlaceholder struct {
	annotation logical.Annotation
	// isAdjoint is set if the operand is an adjoint. An assignment then applies to the ops that
	// read it.
	isAdjoint bool
	// inMain is set for an annotation in the step itself, not in a closure or another function.
	inMain bool
}

func (a annotationPlaceholder) lower(w *assembler, out, in *ir.Value) *ir.Statement {
	if w.isSinglePartition() || a.annotation.Kind() == logical.KindNone {
		return copyOp(out, in)
	}
	return w.constraintOp(out, in, a.annotation)
}

// assignedDevice returns the device to which the annotation assigns its tensor. It returns false
// for another kind of annotation, and for a tensor in a closure or another function.
func (a annotationPlaceholder) assignedDevice() (device int, ok bool) {
	return a.annotation.Device(), a.inMain && a.annotation.Kind() == logical.KindAssign
}

// replicatePlaceholder replicates a tensor if the step splits tensors over two or more logical
// axes.
type replicatePlaceholder struct{}

func (replicatePlaceholder) lower(w *assembler, out, in *ir.Value) *ir.Statement {
	if w.factors.NumSplit() < 2 {
		return copyOp(out, in)
	}
	return w.constraintOp(out, in, logical.Replicated())
}

// zerosPlaceholder represents zeros. Its operand is not used.
type zerosPlaceholder struct{}

func (zerosPlaceholder) lower(_ *assembler, out, _ *ir.Value) *ir.Statement {
	return constantOp(out, ir.Float("0.0", 0))
}

// resolvePlaceholders returns the statements with each placeholder replaced by its ops, and each
// alias by the value it refers to.
func (w *assembler) resolvePlaceholders(all ...*ir.Statement) ([]*ir.Statement, error) {
	return ir.Rewrite(all, func(s *ir.Statement) ([]*ir.Statement, error) {
		switch m := s.Placeholder.(type) {
		case nil:
		case expandedPlaceholder:
			return m.expand(w, s.Results[0], w.resolveAlias(s.Operands[0]))
		case placeholder:
			return []*ir.Statement{m.lower(w, s.Results[0], w.resolveAlias(s.Operands[0]))}, nil
		default:
			return nil, newFault(fmt.Sprintf("placeholder %T", m), "it has no ops",
				"add a method lower or expand to its type in lowering/spmd")
		}
		if len(w.valueAliases) > 0 {
			s = s.ReplaceOperands(w.resolveAlias)
		}
		return []*ir.Statement{s}, nil
	})
}

func (w *assembler) resolveAlias(v *ir.Value) *ir.Value {
	if of, ok := w.valueAliases[v]; ok {
		return of
	}
	return v
}
