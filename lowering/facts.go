package lowering

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"

	"github.com/tpustrategy/tpustrategy/internal/screen"
)

// facts gathers of functions what compilers may not survive, from the operations themselves. It
// answers nil if there is an operation that none of this module's makes: then the text is to be read.
type facts struct {
	found screen.Facts
	own   func(*stablehlo.Statement) bool
}

// Facts returns what is known of functions before they are written, for the compiler's caller to check in
// the place of their text. own tells which custom calls are written as something else. It is nil where
// there are custom calls that are not.
func Facts(own func(*stablehlo.Statement) bool, functions ...*stablehlo.Function) *screen.Facts {
	g := &facts{own: own}
	for _, f := range functions {
		for _, v := range f.Inputs {
			g.value(v)
		}
		ops, ok := g.statements(f.Statements, 8) // a module, a function, a loop or a branch, a list of types
		if !ok {
			return nil
		}
		g.found.Function(f.Name, ops)
	}
	return &g.found
}

func (g *facts) value(v *stablehlo.Value) {
	s := v.Shape()
	g.found.Tensor(s.Dimensions, s.DType == dtypes.Complex128)
}

// statements gathers those within brackets of some depth.
func (g *facts) statements(list []*stablehlo.Statement, depth int) (ops []*screen.Operation, ok bool) {
	g.found.Nested(depth)
	for _, s := range list {
		for _, v := range s.Outputs {
			g.value(v)
		}
		name := s.OpType.ToStableHLO()
		if name == "stablehlo.custom_call" && !g.own(s) {
			return nil, false
		}
		op := &screen.Operation{Name: name}
		switch name {
		case "stablehlo.pad", "stablehlo.reduce_window", "stablehlo.convolution", "stablehlo.sort", "stablehlo.fft",
			"stablehlo.collective_permute", "func.call", "call":
			op = operation(s)
		case "stablehlo.infeed", "stablehlo.outfeed":
		case "stablehlo.constant":
			if text, ok := s.Attributes["value"].(literal); ok {
				value := strings.TrimPrefix(string(text), "dense<")
				g.found.Nested(depth + 1 + len(value) - len(strings.TrimLeft(value, "[")))
			}
			continue
		default:
			if op = nil; len(s.FunctionParameters) == 0 {
				continue
			}
		}
		for _, f := range s.FunctionParameters {
			for _, v := range f.Inputs {
				g.value(v)
			}
			inner, ok := g.statements(f.Statements, depth+2)
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

// operation is a statement with its attributes, each as it is written, and its types.
func operation(s *stablehlo.Statement) *screen.Operation {
	op := &screen.Operation{Name: s.OpType.ToStableHLO()}
	for _, v := range s.Outputs {
		op.Results, op.Outs = append(op.Results, v.String()), append(op.Outs, v.Shape().ToStableHLO())
	}
	for _, v := range s.Inputs {
		op.Operands, op.Ins = append(op.Operands, v.String()), append(op.Ins, v.Shape().ToStableHLO())
	}
	for key, value := range s.Attributes {
		op.Attrs = append(op.Attrs, screen.Attr{Key: key, Value: attributeText(value)})
	}
	for _, f := range s.FunctionParameters {
		region := &screen.Region{}
		for _, inner := range f.Statements {
			region.Ops = append(region.Ops, operation(inner))
		}
		op.Regions = append(op.Regions, region)
	}
	return op
}

// attributeText is an attribute as it is written.
func attributeText(value any) string {
	switch v := value.(type) {
	case string:
		return strconv.Quote(v)
	case interface{ ToStableHLO() string }:
		return v.ToStableHLO()
	}
	return fmt.Sprint(value)
}

// Facts returns what is known of the program, for whoever compiles text, which is what [Program.Text]
// returned. It is nil where that text is to be read.
func (p *Program) Facts(text []byte) *screen.Facts {
	found := Facts(func(*stablehlo.Statement) bool { return false }, p.functions...)
	if found != nil {
		found.Of(text)
	}
	return found
}
