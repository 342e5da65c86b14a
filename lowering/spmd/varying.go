package spmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// A value that is computed from values that are equal on the devices of an axis is equal on them
// too. This file propagates that property by op, without computing values: for the replica axis,
// and, inside manual regions, where each device has its own values, for the logical axes.

// axisSet is a set of logical axes, by index in the mesh, and of the replica axis.
type axisSet uint64

const replicas axisSet = 1 << 63

// variation contains the axes over which each value of a step may vary. of maps the results of
// statements.
type variation struct {
	t  *Trace
	of map[*ir.Value]axisSet
}

// Varying reports for each of the nodes of a step whether it is replica-varying: whether it may
// differ between replicas. parameters are the replica-varying parameters. The replica id is
// replica-varying; the results of all-reduce and all-gather are not. Varying analyzes ops and not
// numbers, so it also reports some nodes that are equal on all replicas.
func Varying(nodes, parameters []*graph.Node) ([]bool, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	t, ok := nodes[0].Graph().Backend().(*Trace)
	if !ok || t.opts.Replicas == 1 {
		return make([]bool, len(nodes)), nil
	}
	if id := nodes[0].Graph().GetParameterByName(ReplicaIDName); id != nil {
		parameters = append([]*graph.Node{id}, parameters...)
	}
	return t.varying(nodes, parameters)
}

// varying is Varying with only the given parameters as replica-varying inputs.
func (t *Trace) varying(nodes, parameters []*graph.Node) ([]bool, error) {
	x := &variation{t: t, of: map[*ir.Value]axisSet{}}
	for _, p := range parameters {
		v, err := t.value(p)
		if err != nil {
			return nil, err
		}
		x.of[v] = replicas
	}
	x.step(t.main().IR().Body)
	all := make([]bool, len(nodes))
	for i, node := range nodes {
		v, err := t.value(node)
		if err != nil {
			return nil, err
		}
		all[i] = x.of[v]&replicas != 0
	}
	return all, nil
}

// value returns a node's value in the step function.
func (t *Trace) value(node *graph.Node) (v *ir.Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			cause, _ := r.(error)
			err = &errkind.Fault{Op: "module: varying", Subject: fmt.Sprintf("node %s", node), Reason: "it is none of the step", Hint: "give nodes that the step made",
				Class: errkind.InvalidArgumentError, Err: cause}
		}
	}()
	t.emit(node, func(_ *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		v = t.main().Value(x)
		return x, nil
	}, nil)
	return v, nil
}

// axisSet returns the set of the named axes.
func (t *Trace) axisSet(names ...string) (set axisSet) {
	for i, name := range t.mesh.AxisNames() {
		if slices.Contains(names, name) {
			set |= 1 << i
		}
	}
	return set
}

// names returns the axes of a set.
func (t *Trace) names(set axisSet) (all []string) {
	for i, name := range t.mesh.AxisNames() {
		if set&(1<<i) != 0 {
			all = append(all, name)
		}
	}
	return all
}

// axesOf returns the axes over which a crossing splits a tensor.
func axesOf(c region.Crossing) (all []string) {
	if shard, ok := c.(region.Shard); ok {
		for _, axes := range shard.Axes {
			for _, axis := range axes {
				all = append(all, axis.Name)
			}
		}
	}
	return all
}

// variation computes the axes over which the values of statements vary.
func (t *Trace) variation(body []*ir.Statement) *variation {
	x := &variation{t: t, of: map[*ir.Value]axisSet{}}
	x.step(body)
	return x
}

// step analyzes the statements of a step, which contains the passes of loops inline.
func (x *variation) step(body []*ir.Statement) {
	pairs := states(body)
	for grown := true; grown; {
		x.statements(body)
		grown = false
		for _, p := range pairs { // a loop's state varies like its updated state
			grown = x.add(p[0], x.of[p[1]]) || grown
		}
	}
}

// states returns pairs of loop states: the value at the start of an iteration and the value for the
// next iteration.
func states(body []*ir.Statement) (pairs [][2]*ir.Value) {
	first := map[*region.Pass][]*ir.Value{}
	for _, s := range body {
		switch m := s.Mark.(type) {
		case entryMark:
			if _, ok := m.pass.In[m.index].(region.Carry); ok {
				first[m.pass] = append(first[m.pass], s.Results[0])
			}
		case exitMark:
			if _, ok := m.pass.Out[m.index].(region.Carry); ok && len(first[m.pass]) > 0 {
				pairs = append(pairs, [2]*ir.Value{first[m.pass][0], s.Operands[0]})
				first[m.pass] = first[m.pass][1:]
			}
		}
	}
	return pairs
}

// add adds axes over which a value varies, and reports whether there are new ones.
func (x *variation) add(v *ir.Value, set axisSet) bool {
	before := x.of[v]
	x.of[v] = before | set
	return set&^before != 0
}

func (x *variation) statements(body []*ir.Statement) {
	for _, s := range body {
		set := axisSet(0)
		read := func(v *ir.Value) { set |= x.of[v] }
		switch {
		case s.Op == "stablehlo.while" && len(s.Regions) == 2:
			x.loop(s)
			continue
		case s.Op == "stablehlo.if" || s.Op == "stablehlo.case":
			x.branches(s)
			continue
		default:
			s.Reads(read)
		}
		switch m := s.Mark.(type) {
		case entryMark:
			set |= x.t.axisSet(axesOf(m.pass.In[m.index])...)
		case exitMark:
			if kind, ok := m.pass.Kind.(region.Manual); ok {
				set &^= x.t.axisSet(kind.Axes...)
			}
		case zeros:
			set = 0
		case reduced, gathered:
			set &^= replicas
		case scattered, ownedPart:
			set |= replicas
		case numberMark:
			set = x.t.axisSet(m.axes...)
		case amongMark:
			switch m.op.(type) {
			case region.AllReduce, region.AllGather:
				set &^= x.t.axisSet(m.axes...)
			default:
				set |= x.t.axisSet(m.axes...)
			}
		}
		for _, v := range s.Results {
			x.add(v, set)
		}
	}
}

// loop analyzes a while statement: a carried value varies like its initial and its updated value,
// and like the number of iterations.
func (x *variation) loop(s *ir.Statement) {
	cond, body := s.Regions[0], s.Regions[1]
	for grown := true; grown; {
		grown = false
		for i, v := range s.Operands {
			grown = x.add(body.Arguments[i], x.of[v]) || grown
		}
		for i := range s.Operands {
			grown = x.add(cond.Arguments[i], x.of[body.Arguments[i]]) || grown
		}
		x.statements(cond.Body)
		x.statements(body.Body)
		runs := x.of[last(cond).Operands[0]]
		for i, v := range last(body).Operands {
			grown = x.add(body.Arguments[i], x.of[v]|runs) || grown
		}
	}
	for i, v := range s.Results {
		x.add(v, x.of[body.Arguments[i]])
	}
}

func last(r *ir.Region) *ir.Statement { return r.Body[len(r.Body)-1] }

// branches analyzes a statement that runs one of its regions.
func (x *variation) branches(s *ir.Statement) {
	for _, r := range s.Regions {
		x.statements(r.Body)
		for i, v := range last(r).Operands {
			x.add(s.Results[i], x.of[v]|x.of[s.Operands[0]])
		}
	}
}

// equal returns an error if a result of a manual region may differ between devices of an axis over
// which the result is not split. A result of a backward pass is summed over these devices instead.
func (t *Trace) equal(x *graph.Node, leave region.Leave) error {
	kind, ok := leave.Pass.Kind.(region.Manual)
	if !ok || leave.Pass.Forward != nil {
		return nil
	}
	body, begin := t.main().IR().Body, 0
	for _, p := range t.passes {
		if p.Pass == leave.Pass {
			begin = p.begin
		}
	}
	v, err := t.value(x)
	if err != nil {
		return err
	}
	crossing := leave.Pass.Out[leave.Index]
	set := t.variation(body[begin:]).of[v] & t.axisSet(t.divided(kind.Axes)...) &^ t.axisSet(axesOf(crossing)...)
	if set == 0 {
		return nil
	}
	axes := strings.Join(t.names(set), ", ")
	return &errkind.Fault{Op: "manual:", Subject: fmt.Sprintf("result %d of shape %v", leave.Index, x.Shape().Dimensions),
		Reason: fmt.Sprintf("its spec does not name the axis %s, and the devices of that axis may have different values", axes),
		Hint:   "name the axis in the result's spec, or make the value equal with AllReduce, AllGather or Broadcast", Class: errkind.ValueError}
}
