package lowering

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// UnsplittableDims lists dimensions of an op's operands and results that XLA's partitioner must not
// split, because it would compute wrong results or fail.
type UnsplittableDims struct {
	// Operands and Results have one element for each operand and result, nil if all its dimensions
	// can be split.
	Operands, Results [][]int
}

// FindUnsplittableDims returns the unsplittable dimensions of an op:
//
//   - the spatial dimensions of a convolution, except for a kernel of size 1 with stride 1, or for an
//     ungrouped kernel that covers the input exactly;
//   - the channels or the batch of a grouped convolution;
//   - the transformed dimensions of an FFT;
//   - the index vector dimension of a gather or scatter.
//
// Other ops that combine elements at several positions, such as reduce_window, sort, slice and pad,
// are correct in any split, as package lowering writes them.
func FindUnsplittableDims(s *ir.Statement) UnsplittableDims {
	w := UnsplittableDims{make([][]int, len(s.Operands)), make([][]int, len(s.Results))}
	switch s.Op {
	case "stablehlo.convolution":
		w.addConvolutionDims(s)
	case "stablehlo.fft":
		lengths, _ := s.Attribute("fft_length").(ir.Ints)
		rank := s.Results[0].Type.Rank()
		for axis := rank - len(lengths); axis < rank; axis++ {
			w.Operands[0] = append(w.Operands[0], axis)
		}
		w.Results[0] = w.Operands[0]
	case "stablehlo.gather":
		w.addIndexVectorDim(s, 1, "dimension_numbers")
	case "stablehlo.scatter":
		w.addIndexVectorDim(s, len(s.Results), "scatter_dimension_numbers")
	}
	return w
}

// addIndexVectorDim adds the index vector dimension of a gather or scatter. operand is the index of
// the operand with the indices.
func (w UnsplittableDims) addIndexVectorDim(s *ir.Statement, operand int, attribute string) {
	numbers, _ := s.Attribute(attribute).(ir.Struct)
	dims := s.Operands[operand].Type.Dims
	for _, axis := range numbers.Dims("index_vector_dim") {
		if axis < len(dims) && dims[axis] > 1 {
			w.Operands[operand] = append(w.Operands[operand], axis)
		}
	}
}

func isZero(row []int) bool { return !slices.ContainsFunc(row, func(n int) bool { return n != 0 }) }

func (w UnsplittableDims) addConvolutionDims(s *ir.Statement) {
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
		if combinesPositions(s, n, s.Operands[0].Type.Dims[slices.Index(layout[input], label)],
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

// combinesPositions reports whether a convolution combines elements at several positions of its
// spatial dimension n. A kernel of size 1 with stride 1 is a product of channels, and an ungrouped
// kernel that covers the input exactly is a sum over the dimension.
func combinesPositions(s *ir.Statement, n, inputSize, kernelSize int) bool {
	at := func(key string, otherwise int) int {
		if list, ok := s.Attribute(key).(ir.Ints); ok {
			return list[n]
		}
		return otherwise
	}
	padding, _ := s.Attribute("padding").(ir.IntMatrix)
	if at("lhs_dilation", 1) != 1 || padding != nil && !isZero(padding[n]) {
		return true
	}
	if kernelSize == 1 {
		return at("window_strides", 1) != 1
	}
	return kernelSize != inputSize || at("rhs_dilation", 1) != 1 || isReversed(s) || isGrouped(s)
}

// isGrouped reports whether a convolution has channel groups or batch groups.
func isGrouped(s *ir.Statement) bool {
	channelGroups, _ := s.Attribute("feature_group_count").(ir.Int)
	batchGroups, _ := s.Attribute("batch_group_count").(ir.Int)
	return channelGroups > 1 || batchGroups > 1
}

func isReversed(s *ir.Statement) bool {
	a := s.Attribute("window_reversal")
	return a != nil && strings.Contains(string(a.Append(nil)), "true")
}

// ConstraintFunc returns a sharding constraint with operand in and result out. It replicates dims
// and leaves the sharding of the other dimensions to the partitioner.
type ConstraintFunc func(out, in *ir.Value, dims []int) *ir.Statement

// ReplicateUnsplittableDims returns a copy of m with sharding constraints that replicate the
// unsplittable dimensions of each op, see [FindUnsplittableDims].
func ReplicateUnsplittableDims(m *ir.Module, target Target, constrain ConstraintFunc) *ir.Module {
	out := *m
	out.Functions = make([]*ir.Function, len(m.Functions))
	for i, f := range m.Functions {
		g := constraintInserter{target: target, constrain: constrain, function: f}
		guarded := *f
		guarded.Body = g.addAllConstraints(f.Body)
		out.Functions[i] = &guarded
	}
	return &out
}

// constraintInserter adds sharding constraints to a function.
type constraintInserter struct {
	target    Target
	constrain ConstraintFunc
	function  *ir.Function
	names     map[string]bool // the names of the function's values; nil until a name is needed
	next      int
}

func (g *constraintInserter) addAllConstraints(body []*ir.Statement) []*ir.Statement {
	body, _ = ir.Rewrite(body, func(s *ir.Statement) ([]*ir.Statement, error) { return g.addConstraints(s), nil })
	return body
}

// addConstraints returns s with constraints on its operands before it and on its results after it.
func (g *constraintInserter) addConstraints(s *ir.Statement) []*ir.Statement {
	walked := FindUnsplittableDims(s)
	var before, after []*ir.Statement
	copied := *s
	copied.Operands, copied.Results = slices.Clone(s.Operands), slices.Clone(s.Results)
	for i, dims := range walked.Operands {
		if len(dims) > 0 {
			v := g.newValue(s.Operands[i])
			before = append(before, g.constrain(v, s.Operands[i], dims))
			copied.Operands[i] = v
		}
	}
	for i, dims := range walked.Results {
		if len(dims) > 0 {
			v := g.newValue(s.Results[i])
			after = append(after, g.constrain(s.Results[i], v, dims))
			copied.Results[i] = v
		}
	}
	if len(before) == 0 && len(after) == 0 {
		return []*ir.Statement{s}
	}
	if s.Op == "stablehlo.fft" && g.target == TargetCPU {
		in, out := g.newValue(s.Operands[0]), g.newValue(s.Results[0])
		before = append(before, rowMajorLayoutOp(in, copied.Operands[0]))
		after = append([]*ir.Statement{rowMajorLayoutOp(copied.Results[0], out)}, after...)
		copied.Operands[0], copied.Results[0] = in, out
	}
	return append(append(before, &copied), after...)
}

// rowMajorLayoutOp returns an op that stores a value in row-major order. Otherwise, the CPU
// compiler runs an FFT in the layout of the preceding all-gather, and the FFT fails at run time if
// the all-gather gathers a dimension other than the first.
func rowMajorLayoutOp(out, in *ir.Value) *ir.Statement {
	order := make([]byte, 0, 32)
	for axis := in.Type.Rank() - 1; axis >= 0; axis-- {
		order = strconv.AppendInt(order, int64(axis), 10)
		if axis > 0 {
			order = append(order, ", "...)
		}
	}
	layouts := ir.Raw("[dense<[" + string(order) + "]> : tensor<" + strconv.Itoa(in.Type.Rank()) + "xindex>]")
	call := ir.Statement{Op: "stablehlo.custom_call", Operands: []*ir.Value{in}, Results: []*ir.Value{out},
		Form: ir.Generic}
	return call.AddAttribute("call_target_name", ir.String("LayoutConstraint")).
		AddAttribute("operand_layouts", layouts).AddAttribute("result_layouts", layouts)
}

// newValue returns a new value with an unused name and the type and origin of like.
func (g *constraintInserter) newValue(like *ir.Value) *ir.Value {
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
