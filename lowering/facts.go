package lowering

import (
	"strconv"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/screen"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// facts gathers of functions what compilers may not survive, from the operations themselves.
type facts struct{ found screen.Facts }

// Facts returns the operations of functions that some compilers do not survive, for pjrt.Lowered to
// check in the place of the functions' text. It returns nil if there are custom calls: then the
// text has to be read. A pass that replaces a mark must put an op there that harms no compiler.
func Facts(functions ...*ir.Function) *screen.Facts {
	g := &facts{}
	for _, f := range functions {
		for _, p := range f.Parameters {
			g.value(p.Value)
		}
		ops, ok := g.statements(f.Body, 8) // a module, a function, a loop or a branch, a list of types
		if !ok {
			return nil
		}
		g.found.Function(f.Name, ops)
	}
	return &g.found
}

func (g *facts) value(v *ir.Value) {
	g.found.Tensor(v.Type.Dims, v.Type.DType == dtypes.Complex128)
}

// statements gathers those within brackets of some depth.
func (g *facts) statements(list []*ir.Statement, depth int) (ops []*screen.Operation, ok bool) {
	g.found.Nested(depth)
	for _, s := range list {
		for _, v := range s.Results {
			g.value(v)
		}
		op := &screen.Operation{Name: s.Op}
		switch s.Op {
		case "stablehlo.custom_call":
			return nil, false
		case "stablehlo.pad", "stablehlo.reduce_window", "stablehlo.convolution", "stablehlo.sort", "stablehlo.fft",
			"stablehlo.collective_permute", "func.call", "call":
			op = operation(s)
		case "stablehlo.infeed", "stablehlo.outfeed":
		case "stablehlo.constant":
			if value, ok := s.Attribute(ir.Elements).(*ir.Dense); ok {
				g.found.Nested(depth + 1 + value.Depth())
			}
			continue
		default:
			if op = nil; len(s.Regions) == 0 {
				continue
			}
		}
		for _, r := range s.Regions {
			for _, v := range r.Arguments {
				g.value(v)
			}
			inner, ok := g.statements(r.Body, depth+2)
			if !ok {
				return nil, false
			}
			if op == nil { // what is within stands for it
				ops = append(ops, inner...)
			}
		}
		if op != nil {
			ops = append(ops, op)
		}
	}
	return ops, true
}

// operation is a statement as those who look at it want it: the numbers of its attributes, the
// words of its enumerations, the functions that it names, and its types.
func operation(s *ir.Statement) *screen.Operation {
	op := &screen.Operation{Name: s.Op}
	for _, v := range s.Results {
		op.Results, op.Outs, op.OutDims = append(op.Results, "%"+v.Name), append(op.Outs, v.Type.String()), append(op.OutDims, wide(v.Type.Dims))
	}
	for _, v := range s.Operands {
		op.Operands, op.Ins, op.InDims = append(op.Operands, "%"+v.Name), append(op.Ins, v.Type.String()), append(op.InDims, wide(v.Type.Dims))
	}
	for _, a := range s.Attributes {
		known := screen.Attr{Key: a.Key}
		switch v := a.Value.(type) {
		case ir.Ints:
			known.Numbers = wide(v)
		case ir.Pairs:
			for _, pair := range v {
				known.Numbers = append(known.Numbers, int64(pair[0]), int64(pair[1]))
			}
		case ir.Flag:
			known.Value = strconv.FormatBool(bool(v))
		case ir.Enum:
			if known.Value = v.Word; a.Key == ir.Direction {
				op.Words = append(op.Words, v.Word)
			}
		case ir.Symbol:
			op.Symbols = append(op.Symbols, string(v))
		case *ir.Dense:
			if v.Splat != nil {
				known.Numbers = []int64{int64(v.Splat.Value)}
			}
		}
		op.Attrs = append(op.Attrs, known)
	}
	for _, r := range s.Regions {
		region := &screen.Region{}
		for _, inner := range r.Body {
			region.Ops = append(region.Ops, operation(inner))
		}
		op.Regions = append(op.Regions, region)
	}
	return op
}

func wide(list []int) []int64 {
	out := make([]int64, len(list))
	for i, n := range list {
		out[i] = int64(n)
	}
	return out
}

// Facts returns the operations of the program that some compilers do not survive, for pjrt.Lowered.
// text is what [Program.Text] returned. It returns nil if the program has custom calls: then the
// text has to be read.
func (p *Program) Facts(text []byte) *screen.Facts {
	found := Facts(p.Module.Functions...)
	if found != nil {
		found.Of(text)
	}
	return found
}
