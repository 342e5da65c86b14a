package spmd

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// A forward or backward pass of a region is a range of the step's statements. Placeholders
// represent its arguments and results. outline.go replaces the passes.

type tracedPass struct {
	*region.Pass
	begin, end int
}

// isManual reports whether a pass becomes a manual computation.
func (p tracedPass) isManual() bool {
	switch p.Kind.(type) {
	case region.Manual, region.On:
		return true
	}
	return false
}

// argumentPlaceholder represents an argument of a forward or backward pass. Its operand is the
// value of the argument outside the pass.
type argumentPlaceholder struct {
	pass  *region.Pass
	index int
}

// resultPlaceholder represents a result of a forward or backward pass. Its operand is the value of
// the result inside the pass.
type resultPlaceholder struct {
	pass  *region.Pass
	index int
}

// deviceIndexPlaceholder represents the index of the device on axes. The enclosing manual
// computation defines it. If the axes have one device, it is 0.
type deviceIndexPlaceholder struct{ axes []string }

func (deviceIndexPlaceholder) lower(_ *assembler, out, _ *ir.Value) *ir.Statement {
	return constantOp(out, ir.Integer(0))
}

// namePlaceholder gives a value a name for the rematerialization policy.
type namePlaceholder struct{ name string }

// lower returns an op that copies the value. It is used if the pass is inlined into the step.
func (argumentPlaceholder) lower(_ *assembler, out, in *ir.Value) *ir.Statement {
	return copyOp(out, in)
}
func (resultPlaceholder) lower(_ *assembler, out, in *ir.Value) *ir.Statement { return copyOp(out, in) }
func (namePlaceholder) lower(_ *assembler, out, in *ir.Value) *ir.Statement   { return copyOp(out, in) }

var _ region.Target = (*Trace)(nil)

// BeginPass implements [region.Target].
func (t *Trace) BeginPass(p *region.Pass) error {
	if err := t.checkDeviceRegion(p.Kind); err != nil {
		return err
	}
	if t.InRegion() {
		return newFault(p.Kind.String(), "inside a region that runs on one logical device",
			"put the logical.OnDevice region elsewhere")
	}
	if err := t.checkOffload(p.Kind); err != nil {
		return err
	}
	t.openPasses = append(t.openPasses, len(t.passes))
	t.passes = append(t.passes, tracedPass{Pass: p, begin: len(t.stepFunction().IR().Body), end: -1})
	return nil
}

// EndPass implements [region.Target].
func (t *Trace) EndPass(*region.Pass) {
	last := len(t.openPasses) - 1
	t.passes[t.openPasses[last]].end = len(t.stepFunction().IR().Body)
	t.openPasses = t.openPasses[:last]
}

func (t *Trace) rematPolicies() (all []Policy) {
	seen := map[*region.Pass]bool{}
	for _, p := range t.passes {
		if p.Forward == nil || seen[p.Forward] {
			continue
		}
		seen[p.Forward] = true
		switch kind := p.Forward.Kind.(type) {
		case region.Loop:
			all = append(all, Policy{kind.Policy, true})
		case region.Block:
			all = append(all, Policy{kind.Policy, false})
		}
	}
	return all
}

// OpenPasses implements [region.Target].
func (t *Trace) OpenPasses() (all []*region.Pass) {
	for _, n := range t.openPasses {
		all = append(all, t.passes[n].Pass)
	}
	return all
}

// EmitOp implements [region.Target].
func (t *Trace) EmitOp(x *graph.Node, op region.Op, gradient func(v *graph.Node) *graph.Node) *graph.Node {
	if leave, ok := op.(region.Leave); ok {
		if err := t.checkReplicated(x, leave); err != nil {
			panic(err)
		}
	}
	y := t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		switch op := op.(type) {
		case region.Enter:
			shape := xshapes.Make(op.Shape.DType, op.Shape.Dimensions...)
			return f.AddPlaceholder(x, shape, argumentPlaceholder{op.Pass, op.Index})
		case region.Leave:
			f.InheritOrigin()
			shape := xshapes.Make(op.Shape.DType, op.Shape.Dimensions...)
			return f.AddPlaceholder(x, shape, resultPlaceholder{op.Pass, op.Index})
		case region.Save:
			op.Slot.Value = x
			return x, nil
		case region.Load:
			return slotValue(op.Slot)
		case region.ZerosLike:
			like, err := slotValue(op.Slot)
			if err != nil {
				return nil, err
			}
			return f.AddPlaceholder(x, like.Shape(), zerosPlaceholder{})
		case region.ScalarZero:
			return f.AddPlaceholder(x, xshapes.Make(dtypes.Float32), zerosPlaceholder{})
		case region.CheckpointName:
			return f.AddPlaceholder(x, x.Shape(), namePlaceholder{op.Name})
		case region.DeviceIndex:
			return f.AddPlaceholder(x, xshapes.Make(dtypes.Int32), deviceIndexPlaceholder{t.nontrivialAxes(op.Axes)})
		case region.Collective:
			return t.addCollective(f, x, collectivePlaceholder{op: op})
		}
		return nil, newFault(fmt.Sprintf("op %T", op), "it has no lowering",
			"add a case to Trace.EmitOp in lowering/spmd")
	}, gradient)
	switch op.(type) {
	case region.Enter, region.Leave, region.Save, region.Load, region.ZerosLike, region.ScalarZero:
		t.emitters[y] = nil
	}
	return y
}

func slotValue(slot *region.Slot) (*stablehlo.Value, error) {
	if v, ok := slot.Value.(*stablehlo.Value); ok {
		return v, nil
	}
	return nil, newFault("region", "its result was read before it was traced", "report this as a fault of tpustrategy")
}
