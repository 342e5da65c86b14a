package module

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"

	"tpustrategy/logical"
	"tpustrategy/lowering"
	"tpustrategy/sharding"
)

// writer assembles the text of one module.
type writer struct {
	trace                    *Trace
	replicas, logicalDevices int
	factors                  logical.Factors
	mesh                     sharding.Mesh
	channels                 int
	body                     strings.Builder // the step's statements
	functions                []string        // the regions' functions
}

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
	m := &Module{Name: p.Name, Mesh: mesh}
	if m.Arguments, m.Results, err = w.border(p, sig); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	step, err := w.step(p.Main)
	if err != nil {
		return nil, err
	}
	for _, f := range t.functions {
		var text strings.Builder
		if err := f.StableHLO().Write(&text, "  "); err != nil {
			return nil, fmt.Errorf("module: function %q: %w", f.Name(), err)
		}
		w.functions = append(w.functions, strings.Replace(w.expand(text.String()), "func.func @", "func.func private @", 1)+"\n")
	}
	main := w.main(m, p)
	var out strings.Builder
	if t.opts.Replicas > 1 {
		fmt.Fprintf(&out, "#replica_groups = %s\n", w.groups())
	}
	fmt.Fprintf(&out, "module @%s attributes {mhlo.num_replicas = 1 : i32, mhlo.num_partitions = %d : i32} {\n",
		stablehlo.NormalizeIdentifier(p.Name), mesh.Size())
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
	return m, nil
}

// single reports whether there is but one device, and so no mesh: the plugins run
// Shardy's passes for more than one partition only.
func (w *writer) single() bool { return w.mesh.Size() == 1 }

// border places the step's arguments and results.
func (w *writer) border(p *lowering.Program, sig Signature) (args, results []Placed, err error) {
	for i, name := range p.ParameterNames {
		if name == ReplicaIDName {
			continue
		}
		if len(args) == len(sig.Arguments) {
			return nil, nil, fmt.Errorf("module: step %q has parameter %q, for which the signature has no argument", p.Name, name)
		}
		placed, err := w.place("argument", sig.Arguments[len(args)], p.Parameters[i].DType, p.Parameters[i].Dimensions)
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
		placed, err := w.place("result", sig.Results[i], shape.DType, shape.Dimensions)
		if err != nil {
			return nil, nil, err
		}
		results = append(results, placed)
	}
	return args, results, nil
}

// step writes the step function.
func (w *writer) step(f *stablehlo.Function) (string, error) {
	var params, types []string
	for _, v := range f.Inputs {
		params = append(params, v.String()+": "+xlaType(v.Shape()))
	}
	for _, v := range f.Outputs {
		types = append(types, xlaType(v.Shape()))
	}
	// With one logical device, its regions are the step.
	regions := w.trace.regions
	if w.logicalDevices == 1 {
		regions = nil
	}
	fl := newFlow(f, regions)
	borders := fl.borders(regions)
	for i := 0; i < len(f.Statements); i++ {
		// Regions that trace to nothing have no statement to stand at.
		if n := fl.regionOf[i]; n >= 0 {
			if err := w.region(fl, n, regions[n], borders[n]); err != nil {
				return "", err
			}
			i = regions[n].end - 1
			continue
		}
		if err := w.statement(&w.body, f.Statements[i], "    "); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("  func.func private @step(%s) -> (%s) {\n%s  }\n",
		strings.Join(params, ", "), strings.Join(types, ", "), w.body.String()), nil
}

// statement writes one statement, markers expanded.
func (w *writer) statement(out *strings.Builder, s *stablehlo.Statement, indent string) error {
	var text strings.Builder
	if err := s.Write(&text, indent); err != nil {
		return fmt.Errorf("module: %w", err)
	}
	out.WriteString(w.expand(text.String()))
	out.WriteByte('\n')
	return nil
}

// main writes the entry function: global tensors in and out, the step inside.
func (w *writer) main(m *Module, p *lowering.Program) string {
	f := p.Main
	var params, outer, outerTypes, inSpecs, inner, call, callTypes []string
	var pre, post strings.Builder
	next := 0
	for i, v := range f.Inputs {
		local, typ := fmt.Sprintf("%%local%d", i), xlaType(v.Shape())
		callTypes = append(callTypes, typ)
		if p.ParameterNames[i] == ReplicaIDName {
			outer, outerTypes = append(outer, "%replica_ids"), append(outerTypes, stack(typ, w.replicas))
			inSpecs = append(inSpecs, sharding.P(ReplicaAxis).ShardyBare(meshName))
			inner = append(inner, local+": "+stack(typ, 1))
			fmt.Fprintf(&pre, "      %%replica_id = stablehlo.reshape %s : (%s) -> %s\n", local, stack(typ, 1), typ)
			call = append(call, "%replica_id")
			continue
		}
		a, name := m.Arguments[next], fmt.Sprintf("%%arg%d", next)
		global, shard := tensorType(typ, a.Global), tensorType(typ, w.manual(a))
		attributes := w.attributeList(a)
		params = append(params, fmt.Sprintf("%s: %s%s", name, global, attributes))
		outer, outerTypes = append(outer, name), append(outerTypes, global)
		inSpecs = append(inSpecs, a.Spec.ShardyBare(meshName))
		inner = append(inner, local+": "+shard)
		if shard != typ {
			fmt.Fprintf(&pre, "      %%scalar%d = stablehlo.reshape %s : (%s) -> %s\n", i, local, shard, typ)
			local = fmt.Sprintf("%%scalar%d", i)
		}
		call = append(call, local)
		next++
	}
	var results, resultTypes, outSpecs, innerTypes, returns, stepTypes, outs []string
	for i, r := range m.Results {
		typ := xlaType(f.Outputs[i].Shape())
		global, shard := tensorType(typ, r.Global), tensorType(typ, w.manual(r))
		results = append(results, global+w.attributeList(r))
		resultTypes = append(resultTypes, global)
		outSpecs = append(outSpecs, r.Spec.ShardyBare(meshName))
		stepTypes = append(stepTypes, typ)
		innerTypes = append(innerTypes, shard)
		value := fmt.Sprintf("%%stepped#%d", i)
		if shard != typ {
			fmt.Fprintf(&post, "      %%vector%d = stablehlo.reshape %s : (%s) -> %s\n", i, value, typ, shard)
			value = fmt.Sprintf("%%vector%d", i)
		}
		returns = append(returns, value)
		outs = append(outs, fmt.Sprintf("%%out#%d", i))
	}
	list := func(s []string) string { return strings.Join(s, ", ") }
	var b strings.Builder
	fmt.Fprintf(&b, "  func.func @main(%s) -> (%s) {\n", list(params), list(results))
	if slices.Contains(outer, "%replica_ids") {
		fmt.Fprintf(&b, "    %%replica_ids = stablehlo.iota dim = 0 : tensor<%dxi32>\n", w.replicas)
	}
	body := fmt.Sprintf("%s      %%stepped:%d = func.call @step(%s) : (%s) -> (%s)\n%s",
		pre.String(), len(m.Results), list(call), list(callTypes), list(stepTypes), post.String())
	if w.single() {
		// One device: the global tensors are the local ones.
		for i := range outer {
			body = replaceName(body, fmt.Sprintf("%%local%d", i), outer[i])
		}
		b.WriteString(strings.ReplaceAll(body, "      ", "    "))
		fmt.Fprintf(&b, "    return %s : %s\n  }\n", list(returns), list(innerTypes))
		return b.String()
	}
	fmt.Fprintf(&b, "    %%out:%d = sdy.manual_computation(%s) in_shardings=[%s] out_shardings=[%s] manual_axes={%q} (%s) {\n",
		len(m.Results), list(outer), list(inSpecs), list(outSpecs), ReplicaAxis, list(inner))
	b.WriteString(body)
	fmt.Fprintf(&b, "      sdy.return %s : %s\n", list(returns), list(innerTypes))
	fmt.Fprintf(&b, "    } : (%s) -> (%s)\n", list(outerTypes), list(resultTypes))
	fmt.Fprintf(&b, "    return %s : %s\n  }\n", list(outs), list(resultTypes))
	return b.String()
}

// manual is the shape of a tensor inside the computation that is manual over the
// replicas: the global one with the replica axis divided out.
func (w *writer) manual(p Placed) []int {
	dims := slices.Clone(p.Global)
	if p.PerReplica {
		dims[0] /= w.replicas
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
