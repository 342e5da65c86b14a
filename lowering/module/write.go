package module

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/screen"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// writer assembles the text of one module.
type writer struct {
	trace                    *Trace
	replicas, logicalDevices int
	factors                  logical.Factors
	mesh                     sharding.Mesh
	channels                 int
	programs                 bool            // R programs of one partition each
	body                     strings.Builder // the step's statements
	functions                []string        // the regions' functions
	alias                    map[string]string
}

// ownFunction matches the names of the module's own functions.
var ownFunction = regexp.MustCompile(`^(step|region_\d+)$`)

// Module assembles the step of a graph that was traced on t and compiled. The
// signature has an entry for each parameter of the graph but the replica id, and
// for each output. The graph can be assembled more than once.
func (t *Trace) Module(g *graph.Graph, sig Signature) (*Module, error) {
	lowered, ok := g.Executable().(*lowering.Lowered)
	if !ok || g.Backend() != t {
		return nil, fmt.Errorf("module: graph %q was not compiled on this trace", g.Name())
	}
	p := lowered.Program()
	annotations := slices.Clone(t.annotations)
	for _, tensor := range slices.Concat(sig.Arguments, sig.Results) {
		annotations = append(annotations, tensor.Annotation)
	}
	factors, err := logical.Factorize(t.opts.LogicalDevices, annotations...)
	if err != nil {
		return nil, err
	}
	mesh, err := sharding.NewMesh(append([]sharding.Axis{{Name: ReplicaAxis, Size: t.opts.Replicas}}, factors.Axes()...)...)
	if err != nil {
		return nil, fmt.Errorf("module: %w", err)
	}
	w := &writer{trace: t, replicas: t.opts.Replicas, logicalDevices: t.opts.LogicalDevices, factors: factors, mesh: mesh}
	m := &Module{Name: p.Name, Mesh: mesh, Replicas: 1, Partitions: mesh.Size()}
	if t.opts.Programs && t.opts.LogicalDevices == 1 {
		w.programs, m.Replicas, m.Partitions = true, mesh.Size(), 1
	}
	if sig.Steps < 0 {
		return nil, fmt.Errorf("module: step %q %d times", p.Name, sig.Steps)
	}
	if m.Arguments, m.Results, err = w.border(p, sig); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	step, err := w.step(p, m)
	if err != nil {
		return nil, err
	}
	for _, f := range t.functions {
		if ownFunction.MatchString(f.StableHLO().Name) {
			return nil, fmt.Errorf("module: a function of the step is named %q, as one of the module's own; name it otherwise", f.Name())
		}
		var text strings.Builder
		if err := f.StableHLO().Write(&text, "  "); err != nil {
			return nil, fmt.Errorf("module: function %q: %w", f.Name(), err)
		}
		w.functions = append(w.functions, strings.Replace(w.expand(text.String()), "func.func @", "func.func private @", 1)+"\n")
	}
	main := w.main(m, p, sig.Steps)
	var out strings.Builder
	if t.opts.Replicas > 1 {
		fmt.Fprintf(&out, "#replica_groups = %s\n", w.groups())
	}
	if len(w.functions) > len(t.functions) { // there are regions
		fmt.Fprintf(&out, "#logical_groups = %s\n", w.logicalGroups())
	}
	fmt.Fprintf(&out, "module @%s attributes {mhlo.num_replicas = %d : i32, mhlo.num_partitions = %d : i32} {\n",
		stablehlo.NormalizeIdentifier(p.Name), m.Replicas, m.Partitions)
	if !w.single() {
		fmt.Fprintf(&out, "  %s\n", mesh.Shardy(meshName))
	}
	out.WriteString(main)
	out.WriteString(step)
	for _, f := range w.functions {
		out.WriteString(f)
	}
	out.WriteString("}\n")
	m.Text = []byte(out.String())
	m.facts = w.facts(m, p)
	return m, nil
}

// facts gathers what is known of the step as it was traced, and of its border. What this
// package writes around it harms no compiler.
func (w *writer) facts(m *Module, p *lowering.Program) *screen.Facts {
	functions := []*stablehlo.Function{p.Main}
	for _, f := range w.trace.functions {
		functions = append(functions, f.StableHLO())
	}
	found := lowering.Facts(func(s *stablehlo.Statement) bool { return s.Attributes[markerAttribute] != nil }, functions...)
	if found == nil {
		return nil
	}
	for _, placed := range slices.Concat(m.Arguments, m.Results) {
		found.Tensor(placed.Global, placed.DType == dtypes.Complex128)
	}
	found.Of(m.Text)
	return found
}

// single reports whether the program has but one partition, and so no mesh: the plugins run
// Shardy's passes for more than one only.
func (w *writer) single() bool { return w.programs || w.mesh.Size() == 1 }

// whole reports whether main's tensors are those of a replica already, so that nothing has to be
// manual over the replicas.
func (w *writer) whole() bool { return w.single() || w.replicas == 1 }

// border places the step's arguments and results.
func (w *writer) border(p *lowering.Program, sig Signature) (args, results []Placed, err error) {
	for i, name := range p.ParameterNames {
		if name == ReplicaIDName {
			continue
		}
		if len(args) == len(sig.Arguments) {
			return nil, nil, fmt.Errorf("module: step %q has parameter %q, for which the signature has no argument", p.Name, name)
		}
		placed, err := w.place("argument", sig.Arguments[len(args)], sig.Steps, p.Parameters[i].DType, p.Parameters[i].Dimensions)
		if err != nil {
			return nil, nil, err
		}
		args = append(args, placed)
	}
	if len(args) != len(sig.Arguments) || len(p.Outputs) != len(sig.Results) {
		return nil, nil, fmt.Errorf("module: step %q has %d arguments and %d results, its signature %d and %d",
			p.Name, len(args), len(p.Outputs), len(sig.Arguments), len(sig.Results))
	}
	for i, shape := range p.Outputs {
		placed, err := w.place("result", sig.Results[i], sig.Steps, shape.DType, shape.Dimensions)
		if err != nil {
			return nil, nil, err
		}
		results = append(results, placed)
	}
	return args, results, nil
}

// step writes the step function.
func (w *writer) step(p *lowering.Program, m *Module) (string, error) {
	f := p.Main
	var params, types []string
	for _, v := range f.Inputs {
		params = append(params, v.String()+": "+xlaType(v.Shape()))
	}
	for _, v := range f.Outputs {
		types = append(types, xlaType(v.Shape()))
	}
	// With one logical device, its regions are the step.
	var regions []region
	if w.logicalDevices > 1 {
		regions = regionsOf(w.trace.regions)
	}
	fl := newFlow(f, regions)
	if w.logicalDevices > 1 {
		regions = w.locate(fl, f, p.ParameterNames, m.Arguments).schedule(regions)
	}
	w.alias = fl.alias
	borders := fl.borders(regions)
	for _, b := range borders {
		for _, name := range b.lent {
			if err := w.again(&w.body, fl, name); err != nil {
				return "", err
			}
		}
	}
	for _, unit := range fl.order(regions) {
		// Regions that trace to nothing have no statement to stand at.
		if unit >= 0 {
			if err := w.region(fl, unit, regions[unit], borders[unit]); err != nil {
				return "", err
			}
			continue
		}
		s := fl.statements[^unit]
		if ^unit == len(fl.statements)-1 {
			w.giveBack(s, m.Results)
			continue
		}
		if len(s.Outputs) == 1 && fl.alias[s.Outputs[0].String()] != "" {
			continue
		}
		if err := w.statement(&w.body, s, "    "); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("  func.func private @step(%s) -> (%s) {\n%s  }\n",
		strings.Join(params, ", "), strings.Join(types, ", "), w.body.String()), nil
}

// giveBack writes the step's return. A result that is split is split here: the
// compiler ends the process when it has to move a value from one split to another
// at the border of the manual computation.
func (w *writer) giveBack(s *stablehlo.Statement, results []Placed) {
	var names, types []string
	for i, v := range s.Inputs {
		name, typ := w.canonical(v.String()), xlaType(v.Shape())
		if r := results[i]; r.Annotation.Kind() == logical.KindSplit && !w.single() {
			split := fmt.Sprintf("%%split_result_%d", i)
			fmt.Fprintf(&w.body, "    %s = sdy.sharding_constraint %s %s : %s\n",
				split, name, r.Annotation.Spec(len(r.Local), w.factors).ShardyBare(meshName), typ)
			name = split
		}
		names, types = append(names, name), append(types, typ)
	}
	fmt.Fprintf(&w.body, "    return %s : %s\n", strings.Join(names, ", "), strings.Join(types, ", "))
}

// statement writes one statement, markers expanded.
func (w *writer) statement(out *strings.Builder, s *stablehlo.Statement, indent string) error {
	var text strings.Builder
	if err := s.Write(&text, indent); err != nil {
		return fmt.Errorf("module: %w", err)
	}
	written := text.String()
	if len(w.alias) > 0 {
		written = valueName.ReplaceAllStringFunc(written, w.canonical)
	}
	out.WriteString(w.expand(written))
	out.WriteByte('\n')
	return nil
}

// valueName matches the names of values in a statement's text.
var valueName = regexp.MustCompile(`%\w+`)

// canonical returns the name of the value that another is a name of.
func (w *writer) canonical(name string) string {
	if of, ok := w.alias[name]; ok {
		return of
	}
	return name
}

// manual is the shape of a tensor inside the computation that is manual over the
// replicas: the global one with the replica axis divided out.
func (w *writer) manual(p Placed) []int {
	dims := slices.Clone(p.Global)
	if p.PerReplica {
		at := 0
		if p.PerStep {
			at = 1
		}
		dims[at] /= w.replicas
	}
	return dims
}

// attributeList writes the attributes of an argument or a result of main.
func (w *writer) attributeList(p Placed) string {
	var attributes []string
	if !w.single() {
		attributes = append(attributes, "sdy.sharding = "+p.Spec.Shardy(meshName))
	}
	if p.Donated {
		attributes = append(attributes, fmt.Sprintf("tf.aliasing_output = %d : i32", p.Result))
	}
	if len(attributes) == 0 {
		return ""
	}
	return " {" + strings.Join(attributes, ", ") + "}"
}
