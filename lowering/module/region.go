package module

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"

	"github.com/tpustrategy/tpustrategy/logical"
)

// flow is what a step's statements define and use, by name.
type flow struct {
	statements []*stablehlo.Statement
	// defined is the index of the statement that defines a value; parameters are
	// not in it. types are the values' types.
	defined map[string]int
	types   map[string]string
	dtypes  map[string]dtypes.DType
	// uses lists what each statement reads, closures included.
	uses [][]string
	// regionOf is the number of a statement's region, or -1.
	regionOf []int
	// alias says of which value another is a name; uses know it, the statements' texts do not.
	alias map[string]string
}

// region is a set of the step's statements that run on one logical device.
type region struct {
	device     int
	statements []int
}

// regionsOf are the regions that the step asked for.
func regionsOf(brackets []bracket) []region {
	regions := make([]region, len(brackets))
	for n, b := range brackets {
		regions[n].device = b.device
		for i := b.begin; i < b.end; i++ {
			regions[n].statements = append(regions[n].statements, i)
		}
	}
	return regions
}

func newFlow(f *stablehlo.Function, regions []region) *flow {
	fl := &flow{
		statements: f.Statements, defined: map[string]int{}, alias: map[string]string{}, types: map[string]string{}, dtypes: map[string]dtypes.DType{},
		uses: make([][]string, len(f.Statements)), regionOf: make([]int, len(f.Statements)),
	}
	know := func(v *stablehlo.Value) {
		fl.types[v.String()], fl.dtypes[v.String()] = xlaType(v.Shape()), v.Shape().DType
	}
	for _, v := range f.Inputs {
		know(v)
	}
	for i, s := range f.Statements {
		for _, v := range s.Outputs {
			know(v)
			fl.defined[v.String()] = i
		}
		fl.uses[i] = uses(s)
		fl.regionOf[i] = -1
	}
	for n, r := range regions {
		for _, i := range r.statements {
			fl.regionOf[i] = n
		}
	}
	return fl
}

// uses lists the names that a statement reads, in order, those read by its
// closures included and those defined there left out.
func uses(s *stablehlo.Statement) []string {
	var names []string
	for _, v := range s.Inputs {
		names = append(names, v.String())
	}
	for _, f := range s.FunctionParameters {
		inside := map[string]bool{}
		for _, v := range f.Inputs {
			inside[v.String()] = true
		}
		for _, nested := range f.Statements {
			for _, name := range uses(nested) {
				if !inside[name] {
					names = append(names, name)
				}
			}
			for _, v := range nested.Outputs {
				inside[v.String()] = true
			}
		}
	}
	return names
}

// constant reports whether a value needs nothing to be made: it is then written
// wherever it is read, instead of being carried across a region's border. So are
// empty tensors, which the compiler drops on the way across.
func (fl *flow) constant(name string) bool {
	i, ok := fl.defined[name]
	return fl.empty(name) || ok && len(fl.uses[i]) == 0 && len(fl.statements[i].FunctionParameters) == 0
}

func (fl *flow) empty(name string) bool { return slices.Contains(dimsOf(fl.types[name]), 0) }

// again writes a constant again.
func (w *writer) again(out *strings.Builder, fl *flow, name string) error {
	if fl.empty(name) {
		fmt.Fprintf(out, "    %s\n", empty(mark{out: name, outType: fl.types[name]}))
		return nil
	}
	return w.statement(out, fl.statements[fl.defined[name]], "    ")
}

// border is what crosses a region's border.
type border struct {
	constants []string // read from outside, written again inside
	lent      []string // constants of the region that are read outside
	in        []string // operands
	kept      []string // operands that an earlier region of the same device kept
	out       []string // results, sent to all logical devices
	keep      []string // results that only later regions of the device read
}

// borders works out the borders of all regions.
func (fl *flow) borders(regions []region) []border {
	all := make([]border, len(regions))
	add := func(list *[]string, name string) {
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	for i := range fl.statements {
		reader := fl.regionOf[i]
		for _, name := range fl.uses[i] {
			home := -1
			if def, ok := fl.defined[name]; ok {
				home = fl.regionOf[def]
			}
			if home == reader {
				continue
			}
			if fl.constant(name) {
				if reader >= 0 {
					add(&all[reader].constants, name)
				} else {
					add(&all[home].lent, name)
				}
				continue
			}
			stays := home >= 0 && reader >= 0 && regions[home].device == regions[reader].device
			if home >= 0 {
				if stays {
					add(&all[home].keep, name)
				} else {
					add(&all[home].out, name)
				}
			}
			if reader >= 0 {
				if stays {
					add(&all[reader].kept, name)
				} else {
					add(&all[reader].in, name)
				}
			}
		}
	}
	return all
}

// region writes the call of region number n into the step and its body as a
// function of its own.
func (w *writer) region(fl *flow, n int, r region, b border) error {
	statements := make([]*stablehlo.Statement, len(r.statements))
	for k, i := range r.statements {
		statements[k] = fl.statements[i]
	}
	if err := w.runsAlone(statements); err != nil {
		return err
	}
	results := append(slices.Clone(b.out), b.keep...)
	if len(results) == 0 {
		return nil // nothing reads it
	}
	operands := append(slices.Clone(b.in), b.kept...)
	var in, inTypes, inSpecs, args, names, outTypes, globalTypes, outSpecs, returns []string
	for i, name := range operands {
		rank, typ, value := rankOf(fl.types[name]), fl.types[name], name
		spec := w.replicated(rank)
		local := typ
		if i >= len(b.in) {
			value, local, typ, spec = keptName(name), stack(typ, 1), stack(typ, w.logicalDevices), w.stacked(rank+1)
		}
		in, inTypes, inSpecs = append(in, value), append(inTypes, typ), append(inSpecs, spec)
		arg := fmt.Sprintf("%%region_%d_arg%d", n, i)
		names = append(names, arg)
		args = append(args, arg+": "+local)
	}
	for i, name := range results {
		typ := fl.types[name]
		if i < len(b.out) {
			outTypes, globalTypes = append(outTypes, typ), append(globalTypes, typ)
			outSpecs = append(outSpecs, w.replicated(rankOf(typ)))
		} else {
			outTypes, globalTypes = append(outTypes, stack(typ, 1)), append(globalTypes, stack(typ, w.logicalDevices))
			outSpecs = append(outSpecs, w.stacked(rankOf(typ)+1))
		}
		returns = append(returns, fmt.Sprintf("%%region_%d_out#%d", n, i))
	}
	var localTypes []string
	for _, arg := range args {
		_, typ, _ := strings.Cut(arg, ": ")
		localTypes = append(localTypes, typ)
	}
	list := func(s []string) string { return strings.Join(s, ", ") }
	fmt.Fprintf(&w.body, "    %%region_%d:%d = sdy.manual_computation(%s) in_shardings=[%s] out_shardings=[%s] manual_axes={%s} (%s) {\n",
		n, len(results), list(in), list(inSpecs), list(outSpecs), w.logicalAxes(), list(args))
	fmt.Fprintf(&w.body, "      %%region_%d_out:%d = func.call @region_%d(%s) : (%s) -> (%s)\n",
		n, len(results), n, list(names), list(localTypes), list(outTypes))
	fmt.Fprintf(&w.body, "      sdy.return %s : %s\n", list(returns), list(outTypes))
	fmt.Fprintf(&w.body, "    } : (%s) -> (%s)\n", list(inTypes), list(globalTypes))
	for i, name := range results {
		// A result is only renamed. Regions that read one that stays take the whole
		// stack, of which each device holds its own slot.
		if i >= len(b.out) {
			name = keptName(name)
		}
		fmt.Fprintf(&w.body, "    %s = stablehlo.reshape %%region_%d#%d : (%s) -> %s\n", name, n, i, globalTypes[i], globalTypes[i])
	}
	return w.regionFunction(fl, n, r.device, statements, b, results, outTypes)
}

// runsAlone refuses calls of functions that the other logical devices must run too.
func (w *writer) runsAlone(statements []*stablehlo.Statement) error {
	for _, s := range statements {
		if f := w.callee(s); f != nil && w.together(f) {
			return &logical.Error{Op: "on", Dim: -1, Devices: w.logicalDevices,
				Reason: fmt.Sprintf("the region calls function %q, which holds an annotation or a collective", f.Name),
				Hint:   "call it before or after the On region"}
		}
		for _, closure := range s.FunctionParameters {
			if err := w.runsAlone(closure.Statements); err != nil {
				return err
			}
		}
	}
	return nil
}

// callee is the function that a statement calls, or nil.
func (w *writer) callee(s *stablehlo.Statement) *stablehlo.Function {
	for _, f := range w.trace.functions {
		if ref, ok := s.Attributes["callee"].(interface{ ToStableHLO() string }); ok && ref.ToStableHLO() == "@"+f.StableHLO().Name {
			return f.StableHLO()
		}
	}
	return nil
}

// together reports whether a function, or one that it calls, holds a marker.
func (w *writer) together(f *stablehlo.Function) bool {
	return slices.ContainsFunc(f.Statements, func(s *stablehlo.Statement) bool {
		if _, ok := s.Attributes[markerAttribute]; ok {
			return true
		}
		called := w.callee(s)
		return called != nil && w.together(called) || slices.ContainsFunc(s.FunctionParameters, w.together)
	})
}

func keptName(name string) string { return "%kept_" + strings.TrimPrefix(name, "%") }

// regionFunction writes a region's body: its statements, run only where the
// partition is the region's device.
func (w *writer) regionFunction(fl *flow, n, device int, statements []*stablehlo.Statement, b border, results, outTypes []string) error {
	var params []string
	for _, name := range b.in {
		params = append(params, name+": "+fl.types[name])
	}
	for _, name := range b.kept {
		params = append(params, keptName(name)+": "+stack(fl.types[name], 1))
	}
	f := &strings.Builder{}
	fmt.Fprintf(f, "  func.func private @region_%d(%s) -> (%s) {\n", n, strings.Join(params, ", "), strings.Join(outTypes, ", "))
	for _, name := range b.kept {
		fmt.Fprintf(f, "    %s = stablehlo.reshape %s : (%s) -> %s\n", name, keptName(name), stack(fl.types[name], 1), fl.types[name])
	}
	for _, name := range b.constants {
		if err := w.again(f, fl, name); err != nil {
			return err
		}
	}
	fmt.Fprintf(f, "    %%region_partition = stablehlo.partition_id : tensor<ui32>\n")
	fmt.Fprintf(f, "    %%region_devices = stablehlo.constant dense<%d> : tensor<ui32>\n", w.logicalDevices)
	fmt.Fprintf(f, "    %%region_device = stablehlo.remainder %%region_partition, %%region_devices : tensor<ui32>\n")
	fmt.Fprintf(f, "    %%region_assigned = stablehlo.constant dense<%d> : tensor<ui32>\n", device)
	fmt.Fprintf(f, "    %%region_here = stablehlo.compare EQ, %%region_device, %%region_assigned : (tensor<ui32>, tensor<ui32>) -> tensor<i1>\n")
	var types, zeros []string
	for i, name := range results {
		types = append(types, fl.types[name])
		zeros = append(zeros, fmt.Sprintf("%%skipped_%d", i))
	}
	fmt.Fprintf(f, "    %%region_out:%d = \"stablehlo.if\"(%%region_here) ({\n", len(results))
	for _, s := range statements {
		if err := w.statement(f, s, "      "); err != nil {
			return err
		}
	}
	fmt.Fprintf(f, "      stablehlo.return %s : %s\n    }, {\n", strings.Join(results, ", "), strings.Join(types, ", "))
	for i, name := range results {
		fmt.Fprintf(f, "      %s = stablehlo.constant dense<%s> : %s\n", zeros[i], zeroLiteral(fl.dtypes[name]), types[i])
	}
	fmt.Fprintf(f, "      stablehlo.return %s : %s\n    }) : (tensor<i1>) -> (%s)\n",
		strings.Join(zeros, ", "), strings.Join(types, ", "), strings.Join(types, ", "))
	var slots []string
	for i, name := range results {
		slots = append(slots, fmt.Sprintf("%%slot_%d", i))
		out := mark{indent: "    ", out: slots[i], in: fmt.Sprintf("%%region_out#%d", i), inType: types[i], outType: outTypes[i]}
		if i < len(b.out) {
			fmt.Fprintf(f, "    %s\n", w.send(out, fl.dtypes[name]))
		} else {
			fmt.Fprintf(f, "    %s\n", w.unchanged(out))
		}
	}
	fmt.Fprintf(f, "    return %s : %s\n  }\n", strings.Join(slots, ", "), strings.Join(outTypes, ", "))
	w.functions = append(w.functions, f.String())
	return nil
}

// send writes the value of the one device of a replica that has it, to all of them: the
// others have zeros.
func (w *writer) send(m mark, dtype dtypes.DType) string {
	op := Sum.String()
	if dtype == dtypes.Bool {
		op = "or"
	}
	w.channels++
	return fmt.Sprintf("%s = \"stablehlo.all_reduce\"(%s) %s {channel_handle = #stablehlo.channel_handle<handle = %d, type = 1>, replica_groups = #logical_groups, use_global_device_ids} : (%s) -> %s",
		m.out, m.in, w.combine(m, op), w.channels, m.inType, m.outType)
}

// zeroLiteral is the dense literal of a dtype's zero.
func zeroLiteral(d dtypes.DType) string {
	switch {
	case d == dtypes.Bool:
		return "false"
	case d.IsComplex():
		return "(0.0, 0.0)"
	case d.IsFloat():
		return "0.0"
	}
	return "0"
}
