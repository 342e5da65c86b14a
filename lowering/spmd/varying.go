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

// An op whose operands are equal on the devices of an axis has results that are equal on them too.
// This file propagates this property through ops, without computing values. It covers the replica
// axis and, inside manual regions, the logical axes.

// axisSet is a bit set of the replica axis and the logical axes. Bit i is axis i of Trace.axes.
type axisSet uint64

// variationAnalysis contains, for each value of a step, the axes over which the value may vary.
type variationAnalysis struct {
	trace *Trace
	axes  map[*ir.Value]axisSet
}

// ReplicaVarying reports for each node of a step whether its value may differ between replicas.
// parameters lists the parameters that differ, besides the replica id. ReplicaVarying analyzes ops
// and not numbers, so it is true for some nodes that are equal on all replicas. It is false for the
// results of all-reduce and all-gather.
func ReplicaVarying(nodes, parameters []*graph.Node) ([]bool, error) {
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
	return t.replicaVarying(nodes, parameters)
}

// replicaVarying is like ReplicaVarying, but assumes that only the given parameters differ between
// replicas.
func (t *Trace) replicaVarying(nodes, parameters []*graph.Node) ([]bool, error) {
	x := &variationAnalysis{trace: t, axes: map[*ir.Value]axisSet{}}
	for _, p := range parameters {
		v, err := t.nodeValue(p)
		if err != nil {
			return nil, err
		}
		x.axes[v] = t.axisSetOf(ReplicaAxis)
	}
	x.analyzeStep(t.stepFunction().IR().Body)
	all := make([]bool, len(nodes))
	for i, node := range nodes {
		v, err := t.nodeValue(node)
		if err != nil {
			return nil, err
		}
		all[i] = x.axes[v]&t.axisSetOf(ReplicaAxis) != 0
	}
	return all, nil
}

// nodeValue returns the IR value of a node of the step.
func (t *Trace) nodeValue(node *graph.Node) (v *ir.Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			cause, _ := r.(error)
			err = &errkind.Fault{Op: "module: varying", Subject: fmt.Sprintf("node %s", node),
				Reason: "it does not belong to the step", Hint: "pass nodes of the step",
				Class: errkind.InvalidArgumentError, Err: cause}
		}
	}()
	t.emit(node, func(_ *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		v = t.stepFunction().Value(x)
		return x, nil
	}, nil)
	return v, nil
}

func (t *Trace) axisSetOf(names ...string) (set axisSet) {
	for i, name := range t.axes.AxisNames() {
		if slices.Contains(names, name) {
			set |= 1 << i
		}
	}
	return set
}

func (t *Trace) axisNames(set axisSet) (all []string) {
	for i, name := range t.axes.AxisNames() {
		if set&(1<<i) != 0 {
			all = append(all, name)
		}
	}
	return all
}

func shardAxes(c region.Mapping) (all []string) {
	if shard, ok := c.(region.Shard); ok {
		for _, axes := range shard.Axes {
			for _, axis := range axes {
				all = append(all, axis.Name)
			}
		}
	}
	return all
}

func (t *Trace) analyzeVariation(body []*ir.Statement) *variationAnalysis {
	x := &variationAnalysis{trace: t, axes: map[*ir.Value]axisSet{}}
	x.analyzeStep(body)
	return x
}

// analyzeStep analyzes the statements of a step, in which the passes of loops are inline.
func (x *variationAnalysis) analyzeStep(body []*ir.Statement) {
	pairs := carriedPairs(body)
	for grown := true; grown; {
		x.analyzeStatements(body)
		grown = false
		for _, p := range pairs { // a loop's state varies like its updated state
			grown = x.addAxes(p[0], x.axes[p[1]]) || grown
		}
	}
}

// carriedPairs returns, for each state of a loop, its value at the start and at the end of an
// iteration.
func carriedPairs(body []*ir.Statement) (pairs [][2]*ir.Value) {
	first := map[*region.Pass][]*ir.Value{}
	for _, s := range body {
		switch m := s.Placeholder.(type) {
		case argumentPlaceholder:
			if _, ok := m.pass.In[m.index].(region.Carry); ok {
				first[m.pass] = append(first[m.pass], s.Results[0])
			}
		case resultPlaceholder:
			if _, ok := m.pass.Out[m.index].(region.Carry); ok && len(first[m.pass]) > 0 {
				pairs = append(pairs, [2]*ir.Value{first[m.pass][0], s.Operands[0]})
				first[m.pass] = first[m.pass][1:]
			}
		}
	}
	return pairs
}

// addAxes records that v may vary over axes. It reports whether one of the axes is new for v.
func (x *variationAnalysis) addAxes(v *ir.Value, set axisSet) bool {
	known := x.axes[v]
	x.axes[v] = known | set
	return set&^known != 0
}

func (x *variationAnalysis) analyzeStatements(body []*ir.Statement) {
	for _, s := range body {
		set := axisSet(0)
		read := func(v *ir.Value) { set |= x.axes[v] }
		switch {
		case s.Op == "stablehlo.while" && len(s.Regions) == 2:
			x.analyzeWhile(s)
			continue
		case s.Op == "stablehlo.if" || s.Op == "stablehlo.case":
			x.analyzeBranches(s)
			continue
		default:
			s.WalkOperands(read)
		}
		switch m := s.Placeholder.(type) {
		case argumentPlaceholder:
			set |= x.trace.axisSetOf(shardAxes(m.pass.In[m.index])...)
		case resultPlaceholder:
			if kind, ok := m.pass.Kind.(region.Manual); ok {
				set &^= x.trace.axisSetOf(kind.Axes...)
			}
		case zerosPlaceholder:
			set = 0
		case parameterShardPlaceholder:
			set |= x.trace.axisSetOf(ReplicaAxis)
		case deviceIndexPlaceholder:
			set = x.trace.axisSetOf(m.axes...)
		case collectivePlaceholder:
			if m.op.IsReplicated() {
				set &^= x.trace.axisSetOf(m.axes...)
			} else {
				set |= x.trace.axisSetOf(m.axes...)
			}
		}
		for _, v := range s.Results {
			x.addAxes(v, set)
		}
	}
}

// analyzeWhile analyzes a while statement. A carried value varies like its initial value, its
// updated value and the number of iterations.
func (x *variationAnalysis) analyzeWhile(s *ir.Statement) {
	cond, body := s.Regions[0], s.Regions[1]
	for grown := true; grown; {
		grown = false
		for i, v := range s.Operands {
			grown = x.addAxes(body.Arguments[i], x.axes[v]) || grown
		}
		for i := range s.Operands {
			grown = x.addAxes(cond.Arguments[i], x.axes[body.Arguments[i]]) || grown
		}
		x.analyzeStatements(cond.Body)
		x.analyzeStatements(body.Body)
		iterations := x.axes[terminator(cond).Operands[0]]
		for i, v := range terminator(body).Operands {
			grown = x.addAxes(body.Arguments[i], x.axes[v]|iterations) || grown
		}
	}
	for i, v := range s.Results {
		x.addAxes(v, x.axes[body.Arguments[i]])
	}
}

func terminator(r *ir.Region) *ir.Statement { return r.Body[len(r.Body)-1] }

func (x *variationAnalysis) analyzeBranches(s *ir.Statement) {
	for _, r := range s.Regions {
		x.analyzeStatements(r.Body)
		for i, v := range terminator(r).Operands {
			x.addAxes(s.Results[i], x.axes[v]|x.axes[s.Operands[0]])
		}
	}
}

// checkReplicated returns an error if the spec of a result does not name a mesh axis, but the
// result may differ between the devices of that axis. The result belongs to a region in which each
// device computes on its own shards (package manual). checkReplicated does not check backward
// passes, because their results are summed over these devices.
func (t *Trace) checkReplicated(x *graph.Node, leave region.Leave) error {
	kind, ok := leave.Pass.Kind.(region.Manual)
	if !ok || leave.Pass.Forward != nil {
		return nil
	}
	body, begin := t.stepFunction().IR().Body, 0
	for _, p := range t.passes {
		if p.Pass == leave.Pass {
			begin = p.begin
		}
	}
	v, err := t.nodeValue(x)
	if err != nil {
		return err
	}
	crossing := leave.Pass.Out[leave.Index]
	set := t.analyzeVariation(body[begin:]).axes[v] & t.axisSetOf(t.nontrivialAxes(kind.Axes)...) &^ t.axisSetOf(
		shardAxes(crossing)...)
	if set == 0 {
		return nil
	}
	axes := strings.Join(t.axisNames(set), ", ")
	return &errkind.Fault{Op: "manual:", Subject: fmt.Sprintf("result %d of shape %v", leave.Index,
		x.Shape().Dimensions),
		Reason: fmt.Sprintf("its spec does not name the axis %s, and the devices of that axis may have different values",
			axes),
		Hint:  "name the axis in the result's spec, or make the value equal with AllReduce, AllGather or Broadcast",
		Class: errkind.ValueError}
}
