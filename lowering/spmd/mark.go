package spmd

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// The StableHLO builder has no Shardy ops, and some ops of this package depend on the whole step. A
// trace therefore adds a placeholder statement with a mark, and the assembler replaces it by ops,
// also in loop bodies.

// mark is the meaning of a placeholder statement.
type mark interface {
	// lower returns the op that computes out from in.
	lower(w *assembler, out, in *ir.Value) *ir.Statement
}

type annotationMark struct {
	annotation logical.Annotation
	// isAdjoint is set if the tensor is an adjoint, whose readers are assigned.
	isAdjoint bool
	// inMain is set for an annotation in the step itself, outside closures and other functions.
	inMain bool
}

func (a annotationMark) lower(w *assembler, out, in *ir.Value) *ir.Statement {
	if w.isSinglePartition() || a.annotation.Kind() == logical.KindNone {
		return copyOp(out, in)
	}
	return w.constrain(out, in, a.annotation)
}

// assignedDevice returns the device of an assigned tensor of the step itself.
func (a annotationMark) assignedDevice() (device int, ok bool) {
	return a.annotation.Device(), a.inMain && a.annotation.Kind() == logical.KindAssign
}

// replicateMark replicates a tensor if the step splits tensors over two or more logical axes.
type replicateMark struct{}

func (replicateMark) lower(w *assembler, out, in *ir.Value) *ir.Statement {
	if w.factors.NumSplit() < 2 {
		return copyOp(out, in)
	}
	return w.constrain(out, in, logical.Replicated())
}

// zerosMark is the mark of zeros with the result's shape. It ignores its operand.
type zerosMark struct{}

func (zerosMark) lower(_ *assembler, out, _ *ir.Value) *ir.Statement {
	return constantOp(out, ir.Float("0.0", 0))
}

// resolveMarks returns the statements with each mark replaced by its ops and each alias by the
// value it refers to.
func (w *assembler) resolveMarks(all ...*ir.Statement) ([]*ir.Statement, error) {
	return ir.Rewrite(all, func(s *ir.Statement) ([]*ir.Statement, error) {
		switch m := s.Mark.(type) {
		case nil:
		case collectiveMark:
			return w.lowerCollective(m, s.Results[0], w.resolveAlias(s.Operands[0]))
		case mark:
			return []*ir.Statement{m.lower(w, s.Results[0], w.resolveAlias(s.Operands[0]))}, nil
		default:
			return nil, newFault(fmt.Sprintf("mark %T", m), "it has no ops",
				"add a method lower to its type in lowering/spmd")
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
