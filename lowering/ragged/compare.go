package ragged

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/go-xla/stablehlo"

	"github.com/tpustrategy/tpustrategy/lowering"
)

// Traced is a step's program for one choice of the padded sizes.
type Traced struct {
	Program *lowering.Program
	// Functions are the functions that it calls.
	Functions []*stablehlo.Function
	// Sizes are the padded dimensions' sizes.
	Sizes []int
	// Marker says what a custom call does, nil if there is none.
	Marker Marker
}

// Marker reports what a custom call of the module's own does: "" if its result is its operand,
// laid out otherwise, or the name of what cannot be done to a padded value.
type Marker func(s *stablehlo.Statement) (op string, known bool)

// Plan is what depends on the sizes in a step. It is made for one program, which Apply
// rewrites.
type Plan struct {
	program *lowering.Program
	sizes   [][]int // of each program
	marker  Marker

	dims      map[string][]Dim // of the values
	shapes    map[string]shapes
	constants map[*stablehlo.Statement][]*function // of the operands, nil for what depends on no size
	varying   map[*stablehlo.Statement][]string    // attributes that differ
	used      map[*stablehlo.Statement]bool        // what a result is made of
}

// Compare finds what depends on the sizes in the program of base. Each of the others is the
// same step for another value of one of the sizes; there are two for each. Their graphs must be
// the same, but for dimensions and constants: otherwise it is an [*Error].
func Compare(base Traced, others []Traced) (*Plan, error) {
	c := &comparer{plan: &Plan{
		program: base.Program, marker: base.Marker, dims: map[string][]Dim{}, shapes: map[string]shapes{},
		constants: map[*stablehlo.Statement][]*function{}, varying: map[*stablehlo.Statement][]string{},
		used: map[*stablehlo.Statement]bool{},
	}}
	all := append([]Traced{base}, others...)
	mains := make([]*stablehlo.Function, len(all))
	for k, t := range all {
		mains[k] = t.Program.Main
		c.plan.sizes = append(c.plan.sizes, t.Sizes)
		c.names = append(c.names, map[string]string{})
		c.markers = append(c.markers, t.Marker)
		c.made = append(c.made, map[string]*stablehlo.Statement{})
		if len(t.Functions) != len(base.Functions) {
			return nil, otherStep("other functions")
		}
	}
	for i, f := range base.Functions {
		called := make([]*stablehlo.Function, len(all))
		for k, t := range all {
			called[k] = t.Functions[i]
		}
		before := len(c.plan.constants) + len(c.plan.varying)
		if err := c.functions(called); err != nil {
			return nil, err
		}
		if len(c.plan.constants)+len(c.plan.varying) > before || c.anyPadded(f) {
			return nil, &Error{Op: "call", Dim: -1, Reason: fmt.Sprintf("function %q depends on a size that is padded", f.Name),
				Hint: "write its ops in the step itself"}
		}
	}
	return c.plan, c.functions(mains)
}

func otherStep(what string) *Error {
	return &Error{Dim: -1, Reason: "the step is another one for other sizes of its padded dimension: " + what,
		Hint: "do the same for all sizes, or mask the padding in the step (FunctionOptions.KeepPadding)"}
}

// comparer walks programs side by side, from their results to their parameters: equal steps
// need not write their ops in the same order. The first program is the plan's.
type comparer struct {
	plan  *Plan
	names []map[string]string // the first program's names of the others' values
	made  []map[string]*stablehlo.Statement

	markers []Marker
}

// functions walks the same function of all programs.
func (c *comparer) functions(fs []*stablehlo.Function) error {
	inputs := make([][]*stablehlo.Value, len(fs))
	results := make([]*stablehlo.Statement, len(fs))
	for k, f := range fs {
		inputs[k] = f.Inputs
		for _, s := range f.Statements {
			for _, v := range s.Outputs {
				c.made[k][v.String()] = s
			}
		}
		if len(f.Statements) == 0 {
			return otherStep("a function without a return")
		}
		results[k] = f.Statements[len(f.Statements)-1]
	}
	if err := c.values(nil, inputs); err != nil {
		return err
	}
	return c.statements(results)
}

// statements compares one statement of each program, and what its operands are made by.
func (c *comparer) statements(row []*stablehlo.Statement) error {
	s := row[0]
	c.plan.used[s] = true
	outputs := make([][]*stablehlo.Value, len(row))
	for k, other := range row {
		outputs[k] = other.Outputs
		if opName(other) != opName(s) || len(other.Inputs) != len(s.Inputs) || len(other.FunctionParameters) != len(s.FunctionParameters) {
			return otherStep(fmt.Sprintf("%s becomes %s", opName(s), opName(other)))
		}
	}
	if opName(s) == "custom_call" && s.Inputs != nil {
		op, known := mark(c.markers[0], s)
		for k, other := range row {
			if o, is := mark(c.markers[k], other); o != op || is != known {
				return otherStep("another custom call")
			}
		}
	}
	for i := range s.Inputs {
		if err := c.operand(row, i); err != nil {
			return err
		}
	}
	for key := range s.Attributes {
		for _, other := range row[1:] {
			if attribute(other, key) != attribute(s, key) {
				c.plan.varying[s] = append(c.plan.varying[s], key)
				break
			}
		}
	}
	for i := range s.FunctionParameters {
		bodies := make([]*stablehlo.Function, len(row))
		for k, other := range row {
			bodies[k] = other.FunctionParameters[i]
		}
		if err := c.functions(bodies); err != nil {
			return err
		}
	}
	return c.values(s, outputs)
}

func mark(m Marker, s *stablehlo.Statement) (op string, known bool) {
	if m == nil {
		return "", false
	}
	return m(s)
}

// values makes the values known that a statement, or nil for a function, gives.
func (c *comparer) values(s *stablehlo.Statement, all [][]*stablehlo.Value) error {
	for i, v := range all[0] {
		var sh shapes
		for k, values := range all {
			if len(values) != len(all[0]) || values[i].Shape().Rank() != v.Shape().Rank() {
				return otherStep("values of another rank")
			}
			c.names[k][values[i].String()] = v.String()
			sh = append(sh, values[i].Shape().Dimensions)
		}
		dims, at := sh.dims(c.plan.sizes)
		if at >= 0 {
			e := &Error{Op: "argument", Shape: sh[0], Dim: at, Reason: "its size is no multiple of one padded size",
				Hint: "keep the padded dimension as it is"}
			if s != nil {
				e.Op = opName(s)
			}
			return e
		}
		c.plan.dims[v.String()], c.plan.shapes[v.String()] = dims, sh
	}
	return nil
}

// operand compares operand i of the statements. Constants are compared where they are used:
// GoMLX has one node for equal ones, so that their number varies.
func (c *comparer) operand(row []*stablehlo.Statement, i int) error {
	made := make([]*stablehlo.Statement, len(row))
	constants, known := 0, false
	for k, s := range row {
		name := s.Inputs[i].String()
		if made[k] = c.made[k][name]; made[k] != nil && opName(made[k]) == "constant" {
			constants++
		}
		if _, ok := c.names[k][name]; ok {
			known = true
		}
	}
	switch {
	case constants == len(row):
		return c.constant(row[0], i, made)
	case constants > 0:
		return otherStep(fmt.Sprintf("%s reads a constant for some", opName(row[0])))
	case !known:
		for _, s := range made {
			if s == nil {
				return otherStep(fmt.Sprintf("%s reads a value of nowhere", opName(row[0])))
			}
		}
		if err := c.statements(made); err != nil {
			return err
		}
	}
	for k, s := range row {
		if c.names[k][s.Inputs[i].String()] != row[0].Inputs[i].String() {
			return otherStep(fmt.Sprintf("%s reads other values", opName(row[0])))
		}
	}
	return nil
}

// constant compares a constant operand.
func (c *comparer) constant(s *stablehlo.Statement, operand int, constants []*stablehlo.Statement) error {
	base := constants[0].Outputs[0]
	values := make([][]*stablehlo.Value, len(constants))
	texts := make([]string, len(constants))
	same, one := true, true
	for k, constant := range constants {
		values[k] = constant.Outputs
		texts[k] = elements(constant)
		same = same && texts[k] == texts[0]
		one = one && splat(texts[k])
	}
	if err := c.values(constants[0], values); err != nil {
		return err
	}
	dims := c.plan.dims[base.String()]
	dtype := base.Shape().DType
	refuse := func(reason string) error {
		return &Error{Op: "constant", Shape: base.Shape().Dimensions, Dim: -1, Reason: reason,
			Hint: "compute it in the step from ReplicaContext.RealSize, or from the data"}
	}
	switch {
	case same && (one || len(padded(dims)) == 0):
		return nil
	case one:
		numbers := make([]float64, len(texts))
		for k, text := range texts {
			var ok bool
			if numbers[k], ok = scalar(text, dtype); !ok {
				return refuse("its number changes with a padded size: " + strings.Join(texts, ", "))
			}
		}
		f, ok := fit(numbers, c.plan.sizes, dtype)
		if !ok {
			return refuse(fmt.Sprintf("no function of the padded size was found for its numbers %s at sizes %v", strings.Join(texts, ", "), c.plan.sizes))
		}
		if c.plan.constants[s] == nil {
			c.plan.constants[s] = make([]*function, len(s.Inputs))
		}
		c.plan.constants[s][operand] = &f
		return nil
	case len(padded(dims)) == 0:
		return refuse("its elements change with a padded size")
	case !leading(padded(dims), base.Shape().Dimensions):
		return refuse("its elements differ, and its padded dimension is not the first")
	}
	// The rows that there are for each size must be the same.
	short, ok := flat(texts[0], dtype, base.Shape().Size())
	for k := 1; k < len(texts) && ok; k++ {
		var long []float64
		if long, ok = flat(texts[k], dtype, constants[k].Outputs[0].Shape().Size()); ok {
			n := min(len(short), len(long))
			ok = slices.EqualFunc(short[:n], long[:n], sameNumber)
		}
	}
	if !ok {
		return refuse("its rows change with the padded size")
	}
	return nil
}

func (c *comparer) anyPadded(f *stablehlo.Function) bool {
	for _, s := range f.Statements {
		for _, v := range s.Outputs {
			if len(padded(c.plan.dims[v.String()])) > 0 {
				return true
			}
		}
	}
	return slices.ContainsFunc(f.Inputs, func(v *stablehlo.Value) bool { return len(padded(c.plan.dims[v.String()])) > 0 })
}

// Results are the dimensions of the program's results.
func (p *Plan) Results() [][]Dim {
	var all [][]Dim
	main := p.program.Main
	for _, v := range main.Statements[len(main.Statements)-1].Inputs {
		all = append(all, p.dims[v.String()])
	}
	return all
}

// leading reports whether the one padded dimension has only such of size 1 before it.
func leading(padded, shape []int) bool {
	return len(padded) == 1 && !slices.ContainsFunc(shape[:padded[0]], func(n int) bool { return n != 1 })
}
