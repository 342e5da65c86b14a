package spmd

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// A pass through a region of package region is a range of the step's statements. Its arguments and
// results are statements with marks. outline.go moves the passes into separate functions.

type pass struct {
	*region.Pass
	begin, end int
}

// manual reports whether a pass is written as a manual computation.
func (p pass) manual() bool {
	switch p.Kind.(type) {
	case region.Manual, region.On:
		return true
	}
	return false
}

// entryMark is the mark of an argument of a pass. The operand is the value outside.
type entryMark struct {
	pass  *region.Pass
	index int
}

// exitMark is the mark of a result of a pass. The operand is the value inside.
type exitMark struct {
	pass  *region.Pass
	index int
}

// nameMark is the mark of a value with a name for the rematerialization policy.
type nameMark struct{ name string }

// write implements [mark]: in a pass that is written inline the value is the operand.
func (entryMark) write(_ *writer, out, in *ir.Value) *ir.Statement { return unchanged(out, in) }
func (exitMark) write(_ *writer, out, in *ir.Value) *ir.Statement  { return unchanged(out, in) }
func (nameMark) write(_ *writer, out, in *ir.Value) *ir.Statement  { return unchanged(out, in) }

var _ region.Target = (*Trace)(nil)

// BeginPass implements [region.Target].
func (t *Trace) BeginPass(p *region.Pass) error {
	if err := t.hostsDevice(p.Kind); err != nil {
		return err
	}
	if t.InRegion() {
		return fault(p.Kind.String(), "inside a region that runs on one logical device", "put the logical.On region elsewhere")
	}
	if err := t.canHost(p.Kind); err != nil {
		return err
	}
	t.nested = append(t.nested, len(t.passes))
	t.passes = append(t.passes, pass{Pass: p, begin: len(t.main().IR().Body), end: -1})
	return nil
}

// EndPass implements [region.Target].
func (t *Trace) EndPass(*region.Pass) {
	last := len(t.nested) - 1
	t.passes[t.nested[last]].end = len(t.main().IR().Body)
	t.nested = t.nested[:last]
}

// policies returns the policy of each loop and block that has a backward pass.
func (t *Trace) policies() (all []Policy) {
	seen := map[*region.Pass]bool{}
	for _, p := range t.passes {
		if p.Forward == nil || seen[p.Forward] {
			continue
		}
		seen[p.Forward] = true
		switch kind := p.Forward.Kind.(type) {
		case region.Loop:
			all = append(all, Policy{kind.Keep, true})
		case region.Block:
			all = append(all, Policy{kind.Keep, false})
		}
	}
	return all
}

// Open implements [region.Target].
func (t *Trace) Open() (all []*region.Pass) {
	for _, n := range t.nested {
		all = append(all, t.passes[n].Pass)
	}
	return all
}

// EmitBorder implements [region.Target].
func (t *Trace) EmitBorder(x *graph.Node, op region.Op, gradient func(v *graph.Node) *graph.Node) *graph.Node {
	if leave, ok := op.(region.Leave); ok {
		if err := t.equal(x, leave); err != nil {
			panic(err)
		}
	}
	y := t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		switch op := op.(type) {
		case region.Enter:
			return f.Mark(x, xshapes.Make(op.Shape.DType, op.Shape.Dimensions...), entryMark{op.Pass, op.Index})
		case region.Leave:
			f.PassOn()
			return f.Mark(x, xshapes.Make(op.Shape.DType, op.Shape.Dimensions...), exitMark{op.Pass, op.Index})
		case region.Save:
			op.Slot.Value = x
			return x, nil
		case region.Load:
			return saved(op.Slot)
		case region.Zeros:
			like, err := saved(op.Slot)
			if err != nil {
				return nil, err
			}
			return f.Mark(x, like.Shape(), zeros{})
		case region.Zero:
			return f.Mark(x, xshapes.Make(dtypes.Float32), zeros{})
		case region.Name:
			return f.Mark(x, x.Shape(), nameMark{op.Name})
		}
		return t.collectiveMark(f, x, op)
	}, gradient)
	switch op.(type) {
	case region.Enter, region.Leave, region.Save, region.Load, region.Zeros, region.Zero:
		t.writes[y] = nil
	}
	return y
}

func saved(slot *region.Slot) (*stablehlo.Value, error) {
	if v, ok := slot.Value.(*stablehlo.Value); ok {
		return v, nil
	}
	return nil, fault("region", "its result was read before it was traced", "report this as a fault of tpustrategy")
}
