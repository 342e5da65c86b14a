package module

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// entry is the entry function while it is written: global tensors in and out, and
// inside the computation that is manual over the replicas the step, once or in a
// loop.
type entry struct {
	w     *writer
	m     *Module
	steps int

	params                                 []string // of main
	outer, outerTypes, inSpecs, inner      []string // of the manual computation
	values, valueTypes                     []string // the step's operands, as the body knows them
	perStep                                []int    // the argument that an operand is a slice of, or -1
	argument                               []int    // the argument of an operand, or -1 for the replica id
	results, globalTypes, outSpecs         []string
	stepTypes, localTypes, returns, outVar []string
	pre, post                              strings.Builder
}

func list(s []string) string { return strings.Join(s, ", ") }

// main writes the entry function.
func (w *writer) main(m *Module, p *lowering.Program, steps int) string {
	e := &entry{w: w, m: m, steps: steps}
	e.takeArguments(p)
	e.giveResults(p)
	var b strings.Builder
	fmt.Fprintf(&b, "  func.func @main(%s) -> (%s) {\n", list(e.params), list(e.results))
	switch {
	case !slices.Contains(e.outer, "%replica_ids"):
	case w.programs:
		b.WriteString("    %replica_number = stablehlo.replica_id : tensor<ui32>\n" +
			"    %replica_scalar = stablehlo.convert %replica_number : (tensor<ui32>) -> tensor<i32>\n" +
			"    %replica_ids = stablehlo.reshape %replica_scalar : (tensor<i32>) -> tensor<1xi32>\n")
	default:
		fmt.Fprintf(&b, "    %%replica_ids = stablehlo.iota dim = 0 : tensor<%dxi32>\n", w.replicas)
	}
	body := e.pre.String() + e.call() + e.post.String()
	if w.whole() {
		b.WriteString(body)
		fmt.Fprintf(&b, "    return %s : %s\n  }\n", list(e.returns), list(e.localTypes))
		return b.String()
	}
	fmt.Fprintf(&b, "    %%out:%d = sdy.manual_computation(%s) in_shardings=[%s] out_shardings=[%s] manual_axes={%q} (%s) {\n",
		len(m.Results), list(e.outer), list(e.inSpecs), list(e.outSpecs), ReplicaAxis, list(e.inner))
	b.WriteString(body)
	fmt.Fprintf(&b, "      sdy.return %s : %s\n", list(e.returns), list(e.localTypes))
	fmt.Fprintf(&b, "    } : (%s) -> (%s)\n", list(e.outerTypes), list(e.globalTypes))
	fmt.Fprintf(&b, "    return %s : %s\n  }\n", list(e.outVar), list(e.globalTypes))
	return b.String()
}

// takeArguments works out how main's arguments become the step's operands.
func (e *entry) takeArguments(p *lowering.Program) {
	next := 0
	for i, v := range p.Main.Inputs {
		local, typ := fmt.Sprintf("%%local%d", i), xlaType(v.Shape())
		e.valueTypes = append(e.valueTypes, typ)
		if p.ParameterNames[i] == ReplicaIDName {
			e.outer, e.outerTypes = append(e.outer, "%replica_ids"), append(e.outerTypes, stack(typ, e.w.replicas))
			e.inSpecs = append(e.inSpecs, sharding.P(ReplicaAxis).ShardyBare(meshName))
			e.inner = append(e.inner, local+": "+stack(typ, 1))
			if e.w.whole() {
				local = "%replica_ids"
			}
			fmt.Fprintf(&e.pre, "      %%replica_id = stablehlo.reshape %s : (%s) -> %s\n", local, stack(typ, 1), typ)
			e.values, e.perStep, e.argument = append(e.values, "%replica_id"), append(e.perStep, -1), append(e.argument, -1)
			continue
		}
		a, name := e.m.Arguments[next], fmt.Sprintf("%%arg%d", next)
		global, shard := tensorType(typ, a.Global), tensorType(typ, e.w.manual(a))
		if e.w.whole() {
			global, local = shard, name
		}
		e.params = append(e.params, name+": "+global+e.w.attributeList(a))
		e.outer, e.outerTypes = append(e.outer, name), append(e.outerTypes, global)
		e.inSpecs = append(e.inSpecs, a.Spec.ShardyBare(meshName))
		e.inner = append(e.inner, local+": "+shard)
		slice := -1
		if a.PerStep {
			slice = next
		} else if shard != typ {
			fmt.Fprintf(&e.pre, "      %%scalar%d = stablehlo.reshape %s : (%s) -> %s\n", i, local, shard, typ)
			local = fmt.Sprintf("%%scalar%d", i)
		}
		e.values, e.perStep, e.argument = append(e.values, local), append(e.perStep, slice), append(e.argument, next)
		next++
	}
}

// giveResults works out how the step's results become main's.
func (e *entry) giveResults(p *lowering.Program) {
	for i, r := range e.m.Results {
		typ := xlaType(p.Main.Outputs[i].Shape())
		global, shard := tensorType(typ, r.Global), tensorType(typ, e.w.manual(r))
		if e.w.whole() {
			global = shard
		}
		e.results = append(e.results, global+e.w.attributeList(r))
		e.globalTypes = append(e.globalTypes, global)
		e.outSpecs = append(e.outSpecs, r.Spec.ShardyBare(meshName))
		e.stepTypes, e.localTypes = append(e.stepTypes, typ), append(e.localTypes, shard)
		value := fmt.Sprintf("%%stepped#%d", i)
		if e.steps > 0 {
			value = fmt.Sprintf("%%loop#%d", i+1)
		}
		if shard != typ {
			fmt.Fprintf(&e.post, "      %%vector%d = stablehlo.reshape %s : (%s) -> %s\n", i, value, typ, shard)
			value = fmt.Sprintf("%%vector%d", i)
		}
		e.returns = append(e.returns, value)
		e.outVar = append(e.outVar, fmt.Sprintf("%%out#%d", i))
	}
}

// call writes the call of the step, in its loop if there is one.
func (e *entry) call() string {
	if e.steps == 0 {
		return fmt.Sprintf("      %%stepped:%d = func.call @step(%s) : (%s) -> (%s)\n",
			len(e.m.Results), list(e.values), list(e.valueTypes), list(e.stepTypes))
	}
	// The loop carries its counter and every result: a variable's starts as its
	// argument, any other as zeros.
	var b strings.Builder
	init := make([]string, len(e.m.Results))
	operands := slices.Clone(e.values)
	for i, at := range e.argument {
		if at >= 0 && e.m.Arguments[at].Donated {
			carried := e.m.Arguments[at].Result
			init[carried], operands[i] = e.values[i], fmt.Sprintf("%%carried%d", carried)
		}
	}
	for i := range init {
		if init[i] == "" {
			init[i] = fmt.Sprintf("%%start%d", i)
			fmt.Fprintf(&b, "      %s = stablehlo.constant dense<%s> : %s\n", init[i], zeroLiteral(e.m.Results[i].DType), e.stepTypes[i])
		}
	}
	state := append([]string{"tensor<i32>"}, e.stepTypes...)
	var before, body []string
	for i, typ := range e.stepTypes {
		before = append(before, fmt.Sprintf("%%before%d: %s", i, typ))
		body = append(body, fmt.Sprintf("%%carried%d: %s", i, typ))
	}
	fmt.Fprintf(&b, "      %%first = stablehlo.constant dense<0> : tensor<i32>\n")
	fmt.Fprintf(&b, "      %%loop:%d = \"stablehlo.while\"(%s) ({\n", len(state), list(append([]string{"%first"}, init...)))
	fmt.Fprintf(&b, "      ^more(%s):\n", list(append([]string{"%count: tensor<i32>"}, before...)))
	fmt.Fprintf(&b, "        %%steps = stablehlo.constant dense<%d> : tensor<i32>\n", e.steps)
	fmt.Fprintf(&b, "        %%again = stablehlo.compare LT, %%count, %%steps : (tensor<i32>, tensor<i32>) -> tensor<i1>\n")
	fmt.Fprintf(&b, "        stablehlo.return %%again : tensor<i1>\n      }, {\n")
	fmt.Fprintf(&b, "      ^step(%s):\n", list(append([]string{"%index: tensor<i32>"}, body...)))
	fmt.Fprintf(&b, "        %%zero = stablehlo.constant dense<0> : tensor<i32>\n")
	for i, at := range e.perStep {
		if at >= 0 {
			operands[i] = e.slice(&b, i, at)
		}
	}
	fmt.Fprintf(&b, "        %%stepped:%d = func.call @step(%s) : (%s) -> (%s)\n",
		len(e.m.Results), list(operands), list(e.valueTypes), list(e.stepTypes))
	fmt.Fprintf(&b, "        %%one = stablehlo.constant dense<1> : tensor<i32>\n")
	fmt.Fprintf(&b, "        %%next = stablehlo.add %%index, %%one : tensor<i32>\n")
	next := []string{"%next"}
	for i := range e.m.Results {
		next = append(next, fmt.Sprintf("%%stepped#%d", i))
	}
	fmt.Fprintf(&b, "        stablehlo.return %s : %s\n      }) : (%s) -> (%s)\n", list(next), list(state), list(state), list(state))
	return b.String()
}

// slice writes an operand's value of the loop's step.
func (e *entry) slice(b *strings.Builder, operand, argument int) string {
	typ := e.valueTypes[operand]
	stacked := e.w.manual(e.m.Arguments[argument])
	starts, sizes, types := []string{"%index"}, []string{"1"}, []string{"tensor<i32>"}
	for _, size := range stacked[1:] {
		starts, sizes, types = append(starts, "%zero"), append(sizes, fmt.Sprint(size)), append(types, "tensor<i32>")
	}
	whole, part := tensorType(typ, stacked), tensorType(typ, append([]int{1}, stacked[1:]...))
	name := fmt.Sprintf("%%batch%d", operand)
	fmt.Fprintf(b, "        %%cut%d = \"stablehlo.dynamic_slice\"(%s, %s) {slice_sizes = array<i64: %s>} : (%s, %s) -> %s\n",
		operand, e.values[operand], list(starts), list(sizes), whole, list(types), part)
	fmt.Fprintf(b, "        %s = stablehlo.reshape %%cut%d : (%s) -> %s\n", name, operand, part, typ)
	return name
}
