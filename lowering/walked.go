package lowering

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Walked lists the dimensions of an operation's operands and results in which an element of the
// result depends on elements at other positions. Devices that split such a dimension must exchange
// elements.
type Walked struct {
	// Operands and Results have one entry for each operand and result. An entry is nil if there are
	// no such dimensions.
	Operands, Results [][]int
}

// WalkedDims returns the dimensions that an operation walks over and that XLA's partitioner must not
// split, because it computes wrong results or fails:
//
//   - the spatial dimensions of a convolution, except for a kernel of one element with stride 1, and
//     except for a kernel without groups that covers the input exactly (the gradient of the former);
//   - the channels of a convolution in groups;
//   - the transformed dimensions of an FFT;
//   - the dimension with the coordinates of each position of a gather or a scatter.
//
// Other operations that combine positions (pools, reduce_window, sort, reverse, slice, pad,
// concatenate) are correct in any split, as package lowering writes them.
func WalkedDims(s *ir.Statement) Walked {
	w := Walked{make([][]int, len(s.Operands)), make([][]int, len(s.Results))}
	switch s.Op {
	case "stablehlo.convolution":
		w.convolution(s)
	case "stablehlo.fft":
		lengths, _ := s.Attribute("fft_length").(ir.Ints)
		rank := s.Results[0].Type.Rank()
		for axis := rank - len(lengths); axis < rank; axis++ {
			w.Operands[0] = append(w.Operands[0], axis)
		}
		w.Results[0] = w.Operands[0]
	case "stablehlo.gather":
		w.positions(s, 1, "dimension_numbers")
	case "stablehlo.scatter":
		w.positions(s, len(s.Results), "scatter_dimension_numbers")
	}
	return w
}

// positions adds the dimension with the coordinates of an operand that contains positions.
func (w Walked) positions(s *ir.Statement, operand int, attribute string) {
	numbers, _ := s.Attribute(attribute).(ir.Struct)
	dims := s.Operands[operand].Type.Dims
	for _, axis := range numbers.Dims("index_vector_dim") {
		if axis < len(dims) && dims[axis] > 1 {
			w.Operands[operand] = append(w.Operands[operand], axis)
		}
	}
}

func zeroRow(row []int) bool { return !slices.ContainsFunc(row, func(n int) bool { return n != 0 }) }

// convolution adds the dimensions of a convolution.
func (w Walked) convolution(s *ir.Statement) {
	layout, ok := s.Attribute("dimension_numbers").(ir.ConvDimensionNumbers)
	if !ok {
		return
	}
	const input, kernel, output = 0, 1, 2
	add := func(tensor int, label string) {
		axis := slices.Index(layout[tensor], label)
		if tensor == output {
			w.Results[0] = append(w.Results[0], axis)
		} else {
			w.Operands[tensor] = append(w.Operands[tensor], axis)
		}
	}
	for n := range len(layout[input]) - 2 {
		label := strconv.Itoa(n)
		if convolutionWalks(s, n, s.Operands[0].Type.Dims[slices.Index(layout[input], label)],
			s.Operands[1].Type.Dims[slices.Index(layout[kernel], label)]) {
			for tensor := range layout {
				add(tensor, label)
			}
		}
	}
	if isGrouped(s) {
		add(input, "f")
		add(kernel, "i")
		add(kernel, "o")
		add(output, "f")
	}
	if batchGroups, _ := s.Attribute("batch_group_count").(ir.Int); batchGroups > 1 {
		add(input, "b")
		add(output, "b")
	}
}

// convolutionWalks reports whether a convolution combines positions of its spatial dimension n. It
// does not if the kernel has one element and stride 1, which is a product of channels, or if the
// kernel of a convolution without groups covers the input exactly, which is a sum over the
// dimension.
func convolutionWalks(s *ir.Statement, n, inputSize, kernelSize int) bool {
	at := func(key string, otherwise int) int {
		if list, ok := s.Attribute(key).(ir.Ints); ok {
			return list[n]
		}
		return otherwise
	}
	padding, _ := s.Attribute("padding").(ir.IntMatrix)
	if at("lhs_dilation", 1) != 1 || padding != nil && !zeroRow(padding[n]) {
		return true
	}
	if kernelSize == 1 {
		return at("window_strides", 1) != 1
	}
	return kernelSize != inputSize || at("rhs_dilation", 1) != 1 || isReversed(s) || isGrouped(s)
}

// isGrouped reports whether a convolution has groups of channels or of the batch.
func isGrouped(s *ir.Statement) bool {
	channelGroups, _ := s.Attribute("feature_group_count").(ir.Int)
	batchGroups, _ := s.Attribute("batch_group_count").(ir.Int)
	return channelGroups > 1 || batchGroups > 1
}

// isReversed reports whether a convolution reverses its kernel in any dimension.
func isReversed(s *ir.Statement) bool {
	a := s.Attribute("window_reversal")
	return a != nil && strings.Contains(string(a.Append(nil)), "true")
}

// Constrain returns a sharding constraint that replicates dims of a value and leaves the other
// dimensions open.
type Constrain func(out, in *ir.Value, dims []int) *ir.Statement

// GatherWalkedDims returns a module with sharding constraints that gather each split dimension that
// an operation combines, see [WalkedDims]. The module m is not changed.
func GatherWalkedDims(m *ir.Module, target Target, constrain Constrain) *ir.Module {
	out := *m
	out.Functions = make([]*ir.Function, len(m.Functions))
	for i, f := range m.Functions {
		g := gatherer{target: target, constrain: constrain, function: f}
		guarded := *f
		guarded.Body = g.statements(f.Body)
		out.Functions[i] = &guarded
	}
	return &out
}

// gatherer adds constraints to a function.
type gatherer struct {
	target    Target
	constrain Constrain
	function  *ir.Function
	names     map[string]bool // the names of the function's values; nil until a name is needed
	next      int
}

func (g *gatherer) statements(body []*ir.Statement) []*ir.Statement {
	body, _ = ir.Rewrite(body, func(s *ir.Statement) ([]*ir.Statement, error) { return g.statement(s), nil })
	return body
}

// statement returns s with constraints for its operands before it and for its results after it.
func (g *gatherer) statement(s *ir.Statement) []*ir.Statement {
	walked := WalkedDims(s)
	var before, after []*ir.Statement
	copied := *s
	copied.Operands, copied.Results = slices.Clone(s.Operands), slices.Clone(s.Results)
	for i, dims := range walked.Operands {
		if len(dims) > 0 {
			v := g.value(s.Operands[i])
			before = append(before, g.constrain(v, s.Operands[i], dims))
			copied.Operands[i] = v
		}
	}
	for i, dims := range walked.Results {
		if len(dims) > 0 {
			v := g.value(s.Results[i])
			after = append(after, g.constrain(s.Results[i], v, dims))
			copied.Results[i] = v
		}
	}
	if len(before) == 0 && len(after) == 0 {
		return []*ir.Statement{s}
	}
	if s.Op == "stablehlo.fft" && g.target == TargetCPU {
		in, out := g.value(s.Operands[0]), g.value(s.Results[0])
		before = append(before, rowMajor(in, copied.Operands[0]))
		after = append([]*ir.Statement{rowMajor(copied.Results[0], out)}, after...)
		copied.Operands[0], copied.Results[0] = in, out
	}
	return append(append(before, &copied), after...)
}

// rowMajor stores a value in row-major order. The CPU compiler gives an FFT the layout of the
// preceding all-gather. For an all-gather of any dimension but the first, the FFT then fails at run
// time.
func rowMajor(out, in *ir.Value) *ir.Statement {
	order := make([]byte, 0, 32)
	for axis := in.Type.Rank() - 1; axis >= 0; axis-- {
		order = strconv.AppendInt(order, int64(axis), 10)
		if axis > 0 {
			order = append(order, ", "...)
		}
	}
	layouts := ir.Raw("[dense<[" + string(order) + "]> : tensor<" + strconv.Itoa(in.Type.Rank()) + "xindex>]")
	call := ir.Statement{Op: "stablehlo.custom_call", Operands: []*ir.Value{in}, Results: []*ir.Value{out}, Form: ir.Generic}
	return call.AddAttribute("call_target_name", ir.String("LayoutConstraint")).AddAttribute("operand_layouts", layouts).AddAttribute("result_layouts", layouts)
}

// value returns a new value with the type and the origin of like.
func (g *gatherer) value(like *ir.Value) *ir.Value {
	if g.names == nil {
		g.names = map[string]bool{}
		for _, p := range g.function.Parameters {
			g.names[p.Name] = true
		}
		var collect func(body []*ir.Statement)
		collect = func(body []*ir.Statement) {
			for _, s := range body {
				for _, v := range s.Results {
					g.names[v.Name] = true
				}
				for _, r := range s.Regions {
					for _, v := range r.Arguments {
						g.names[v.Name] = true
					}
					collect(r.Body)
				}
			}
		}
		collect(g.function.Body)
	}
	for {
		name := "unsplit_" + strconv.Itoa(g.next)
		g.next++
		if !g.names[name] {
			return &ir.Value{Name: name, Type: like.Type, Origin: like.Origin}
		}
	}
}
