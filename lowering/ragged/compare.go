package ragged

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Variant is the program of a step that was traced for particular sizes of the padded dimensions.
type Variant struct {
	Program *lowering.Program
	// Sizes contains the sizes of the padded dimensions.
	Sizes             []int
	PlaceholderEffect PlaceholderEffect
}

// PlaceholderEffect describes whether a placeholder operation supports padding. It returns "" if
// the result contains the operand's elements, possibly in another layout. For an operation that
// does not support padding it returns the operation's name.
type PlaceholderEffect func(placeholder any) (op string)

// Plan describes how a step's program depends on the padded sizes. [Plan.Apply] rewrites the
// program so that it ignores the padding.
type Plan struct {
	program           *lowering.Program
	sizes             [][]int // of each program
	placeholderEffect PlaceholderEffect

	dims              map[*ir.Value][]Dim // of the values
	shapes            map[*ir.Value]variantDims
	constants         map[*ir.Statement][]*sizeFunction // by operand; nil if it depends on no size
	varyingAttributes map[*ir.Statement][]string        // attributes that differ
	used              map[*ir.Statement]bool            // statements that a result depends on
}

// Compare determines how the program of base depends on the padded sizes. Each program in others is
// the same step, traced with a different value of one size. There must be two such programs for
// each size. Compare returns an [*Error] if the programs differ in more than dimensions and
// constants.
func Compare(base Variant, others []Variant) (*Plan, error) {
	c := &comparer{plan: &Plan{
		program: base.Program, placeholderEffect: base.PlaceholderEffect, dims: map[*ir.Value][]Dim{},
		shapes:    map[*ir.Value]variantDims{},
		constants: map[*ir.Statement][]*sizeFunction{}, varyingAttributes: map[*ir.Statement][]string{},
		used: map[*ir.Statement]bool{},
	}}
	all := append([]Variant{base}, others...)
	mains := make([]*ir.Function, len(all))
	for k, t := range all {
		mains[k] = t.Program.Main()
		c.plan.sizes = append(c.plan.sizes, t.Sizes)
		c.baseValues = append(c.baseValues, map[*ir.Value]*ir.Value{})
		c.placeholderEffects = append(c.placeholderEffects, t.PlaceholderEffect)
		c.definitions = append(c.definitions, map[*ir.Value]*ir.Statement{})
		if len(t.Program.Module.Functions) != len(base.Program.Module.Functions) {
			return nil, differentStepError("other functions")
		}
	}
	for i, f := range base.Program.Module.Functions[1:] {
		called := make([]*ir.Function, len(all))
		for k, t := range all {
			called[k] = t.Program.Module.Functions[1+i]
		}
		before := len(c.plan.constants) + len(c.plan.varyingAttributes)
		if err := c.compareFunctions(called); err != nil {
			return nil, err
		}
		if len(c.plan.constants)+len(c.plan.varyingAttributes) > before || c.hasPadding(f) {
			return nil, &Error{Op: "call", Dim: -1,
				Reason: fmt.Sprintf("function %q depends on a size that is padded", f.Name),
				Hint:   "write its ops in the step itself"}
		}
	}
	return c.plan, c.compareFunctions(mains)
}

func differentStepError(what string) *Error {
	return &Error{Dim: -1, Reason: "the step is different for other sizes of its padded dimension: " + what,
		Hint: "do the same for all sizes, or mask the padding in the step (FunctionOptions.Padding: KeepPadding)"}
}

// comparer traverses all programs in parallel, from their results to their parameters. It does not
// compare statements by position, because equal steps may have them in different orders.
type comparer struct {
	plan        *Plan
	baseValues  []map[*ir.Value]*ir.Value // maps values of the first program to values of the others
	definitions []map[*ir.Value]*ir.Statement

	placeholderEffects []PlaceholderEffect
}

func (c *comparer) compareFunctions(fs []*ir.Function) error {
	blocks := make([]*ir.Region, len(fs))
	for k, f := range fs {
		blocks[k] = &ir.Region{Body: f.Body}
		for _, p := range f.Parameters {
			blocks[k].Arguments = append(blocks[k].Arguments, p.Value)
		}
	}
	return c.compareBlocks(blocks)
}

func (c *comparer) compareBlocks(rs []*ir.Region) error {
	arguments := make([][]*ir.Value, len(rs))
	results := make([]*ir.Statement, len(rs))
	for k, r := range rs {
		arguments[k] = r.Arguments
		for _, s := range r.Body {
			for _, v := range s.Results {
				c.definitions[k][v] = s
			}
		}
		if len(r.Body) == 0 {
			return differentStepError("a function without a return")
		}
		results[k] = r.Body[len(r.Body)-1]
	}
	if err := c.recordValues(nil, arguments); err != nil {
		return err
	}
	return c.compareStatements(results)
}

// compareStatements compares statements that correspond to each other, one from each program. It
// also compares the statements that define their operands.
func (c *comparer) compareStatements(statements []*ir.Statement) error {
	s := statements[0]
	c.plan.used[s] = true
	outputs := make([][]*ir.Value, len(statements))
	for k, other := range statements {
		outputs[k] = other.Results
		if other.OpName() != s.OpName() || len(other.Operands) != len(s.Operands) ||
			len(other.Regions) != len(s.Regions) {
			return differentStepError(fmt.Sprintf("%s becomes %s", s.OpName(), other.OpName()))
		}
	}
	for k, other := range statements {
		if (s.Placeholder == nil) != (other.Placeholder == nil) || s.Placeholder != nil &&
			c.placeholderEffects[k](other.Placeholder) != c.placeholderEffects[0](s.Placeholder) {
			return differentStepError("another custom call")
		}
	}
	for i := range s.Operands {
		if err := c.compareOperands(statements, i); err != nil {
			return err
		}
	}
	for _, a := range s.Attributes {
		for _, other := range statements[1:] {
			if attributeText(other, a.Key) != attributeText(s, a.Key) {
				c.plan.varyingAttributes[s] = append(c.plan.varyingAttributes[s], a.Key)
				break
			}
		}
	}
	for i := range s.Regions {
		bodies := make([]*ir.Region, len(statements))
		for k, other := range statements {
			bodies[k] = other.Regions[i]
		}
		if err := c.compareBlocks(bodies); err != nil {
			return err
		}
	}
	return c.recordValues(s, outputs)
}

// recordValues records values that correspond to each other, one from each program, and how their
// dimensions depend on the padded sizes. The values are results of s, or parameters of a function
// if s is nil.
func (c *comparer) recordValues(s *ir.Statement, all [][]*ir.Value) error {
	for i, v := range all[0] {
		var sh variantDims
		for k, values := range all {
			if len(values) != len(all[0]) || values[i].Type.Rank() != v.Type.Rank() {
				return differentStepError("values of another rank")
			}
			c.baseValues[k][values[i]] = v
			sh = append(sh, values[i].Type.Dims)
		}
		dims, at := sh.sizeDependencies(c.plan.sizes)
		if at >= 0 {
			e := &Error{Op: "argument", Shape: sh[0], Dim: at, Reason: "its size is no multiple of one padded size",
				Hint: "keep the padded dimension as it is"}
			if s != nil {
				e.Op = s.OpName()
			}
			return e
		}
		c.plan.dims[v], c.plan.shapes[v] = dims, sh
	}
	return nil
}

// compareOperands compares operand i of corresponding statements. It compares constants where they
// are used, because GoMLX merges equal constants, so that the programs may have different numbers
// of constants.
func (c *comparer) compareOperands(statements []*ir.Statement, i int) error {
	definitions := make([]*ir.Statement, len(statements))
	constants, known := 0, false
	for k, s := range statements {
		name := s.Operands[i]
		if definitions[k] = c.definitions[k][name]; definitions[k] != nil && definitions[k].Op == constantOp {
			constants++
		}
		if _, ok := c.baseValues[k][name]; ok {
			known = true
		}
	}
	switch {
	case constants == len(statements):
		return c.compareConstants(statements[0], i, definitions)
	case constants > 0:
		return differentStepError(fmt.Sprintf("%s reads a constant for some", statements[0].OpName()))
	case !known:
		for _, s := range definitions {
			if s == nil {
				return differentStepError(fmt.Sprintf("%s reads a value of nowhere", statements[0].OpName()))
			}
		}
		if err := c.compareStatements(definitions); err != nil {
			return err
		}
	}
	for k, s := range statements {
		if c.baseValues[k][s.Operands[i]] != statements[0].Operands[i] {
			return differentStepError(fmt.Sprintf("%s reads other values", statements[0].OpName()))
		}
	}
	return nil
}

// compareConstants compares a constant operand of corresponding statements. It records a constant
// that is a function of the sizes.
func (c *comparer) compareConstants(s *ir.Statement, operand int, constants []*ir.Statement) error {
	base := constants[0].Results[0]
	values := make([][]*ir.Value, len(constants))
	elements, texts := make([]*ir.Dense, len(constants)), make([]string, len(constants))
	same, one := true, true
	for k, constant := range constants {
		values[k] = constant.Results
		var ok bool
		if elements[k], ok = constant.Attribute(ir.ValueKey).(*ir.Dense); !ok {
			return unknownAttributeError(constant, ir.ValueKey)
		}
		texts[k] = string(elements[k].AppendElements(nil))
		same = same && texts[k] == texts[0]
		one = one && elements[k].Splat != nil && elements[k].Splat.HasValue
	}
	if err := c.recordValues(constants[0], values); err != nil {
		return err
	}
	dims := c.plan.dims[base]
	dtype := base.Type.DType
	refuse := func(reason string) error {
		return &Error{Op: "constant", Shape: base.Type.Dims, Dim: -1, Reason: reason,
			Hint: "compute it in the step from ReplicaContext.RealSize, or from the data"}
	}
	switch {
	case same && (one || len(paddedDims(dims)) == 0):
		return nil
	case one:
		numbers := make([]float64, len(elements))
		for k, e := range elements {
			numbers[k] = e.Splat.Value
		}
		f, ok := fitSizeFunction(numbers, c.plan.sizes, dtype)
		if !ok {
			return refuse(fmt.Sprintf("no function of the padded size was found for its numbers %s at sizes %v",
				strings.Join(texts, ", "), c.plan.sizes))
		}
		if c.plan.constants[s] == nil {
			c.plan.constants[s] = make([]*sizeFunction, len(s.Operands))
		}
		c.plan.constants[s][operand] = &f
		return nil
	case len(paddedDims(dims)) == 0:
		return refuse("its elements change with a padded size")
	case !isLeadingDim(paddedDims(dims), base.Type.Dims):
		return refuse("its elements differ, and its padded dimension is not the first")
	}
	// All programs for one size must have the same number of elements.
	short, ok := flatElements(elements[0])
	for k := 1; k < len(elements) && ok; k++ {
		var long []float64
		if long, ok = flatElements(elements[k]); ok {
			n := min(len(short), len(long))
			ok = slices.EqualFunc(short[:n], long[:n], equalNumbers)
		}
	}
	if !ok {
		return refuse("its rows change with the padded size")
	}
	return nil
}

func (c *comparer) hasPadding(f *ir.Function) bool {
	is := func(v *ir.Value) bool { return len(paddedDims(c.plan.dims[v])) > 0 }
	return slices.ContainsFunc(f.Body, func(s *ir.Statement) bool { return slices.ContainsFunc(s.Results, is) }) ||
		slices.ContainsFunc(f.Parameters, func(p ir.Parameter) bool { return is(p.Value) })
}

// ResultDims returns the dimensions of each result of the program.
func (p *Plan) ResultDims() [][]Dim {
	var all [][]Dim
	body := p.program.Main().Body
	for _, v := range body[len(body)-1].Operands {
		all = append(all, p.dims[v])
	}
	return all
}

// isLeadingDim reports whether there is one padded dimension and all dimensions before it have size
// 1.
func isLeadingDim(padded, shape []int) bool {
	return len(padded) == 1 && !slices.ContainsFunc(shape[:padded[0]], func(n int) bool { return n != 1 })
}
