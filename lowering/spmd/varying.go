package spmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Inside of a manual region each device has values of its own. A value that is made of values that
// are equal on the devices of an axis is equal on them too: what follows from that is worked out
// here, by the ops and not by numbers.

// over is a set of logical axes, by their numbers in the mesh.
type over uint64

// variation says over which axes each value of a step may vary: of has the values that the
// statements make.
type variation struct {
	t  *Trace
	of map[*ir.Value]over
}

// over is the set of the named axes.
func (t *Trace) over(names ...string) (set over) {
	for i, name := range t.mesh.AxisNames() {
		if slices.Contains(names, name) {
			set |= 1 << i
		}
	}
	return set
}

// names are the axes of a set.
func (t *Trace) names(set over) (all []string) {
	for i, name := range t.mesh.AxisNames() {
		if set&(1<<i) != 0 {
			all = append(all, name)
		}
	}
	return all
}

// axesOf are the names of the axes over which a crossing cuts a tensor.
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

// varies works out the variation of statements.
func (t *Trace) varies(body []*ir.Statement) *variation {
	x := &variation{t: t, of: map[*ir.Value]over{}}
	pairs := states(body)
	for {
		x.statements(body)
		again := false
		for _, p := range pairs { // a loop's state varies as it does after a run
			again = x.add(p[0], x.of[p[1]]) || again
		}
		if !again {
			return x
		}
	}
}

// add makes a value vary over more axes, and reports whether it did not before.
func (x *variation) add(v *ir.Value, set over) bool {
	before := x.of[v]
	x.of[v] = before | set
	return set&^before != 0
}

func (x *variation) statements(body []*ir.Statement) {
	for _, s := range body {
		set := over(0)
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
		case entered:
			set |= x.t.over(axesOf(m.pass.In[m.index])...)
		case left:
			if kind, ok := m.pass.Kind.(region.Manual); ok {
				set &^= x.t.over(kind.Axes...)
			}
		case zeros:
			set = 0
		case numbered:
			set = x.t.over(m.axes...)
		case among:
			switch m.op.(type) {
			case region.Reduced, region.Gathered:
				set &^= x.t.over(m.axes...)
			default:
				set |= x.t.over(m.axes...)
			}
		}
		for _, v := range s.Results {
			x.add(v, set)
		}
	}
}

// loop is a while statement: what it carries varies as it does before or after a run, and if the
// number of runs does.
func (x *variation) loop(s *ir.Statement) {
	cond, body := s.Regions[0], s.Regions[1]
	for again := true; again; {
		again = false
		for i, v := range s.Operands {
			again = x.add(body.Arguments[i], x.of[v]) || again
		}
		for i := range s.Operands {
			again = x.add(cond.Arguments[i], x.of[body.Arguments[i]]) || again
		}
		x.statements(cond.Body)
		x.statements(body.Body)
		runs := x.of[last(cond).Operands[0]]
		for i, v := range last(body).Operands {
			again = x.add(body.Arguments[i], x.of[v]|runs) || again
		}
	}
	for i, v := range s.Results {
		x.add(v, x.of[body.Arguments[i]])
	}
}

func last(r *ir.Region) *ir.Statement { return r.Body[len(r.Body)-1] }

// branches is a statement that runs one of its regions.
func (x *variation) branches(s *ir.Statement) {
	for _, r := range s.Regions {
		x.statements(r.Body)
		for i, v := range last(r).Operands {
			x.add(s.Results[i], x.of[v]|x.of[s.Operands[0]])
		}
	}
}

// equal returns an error if a result of a manual region may differ between devices that have to
// agree on it: devices of an axis that the result is not cut over. What leaves a backward pass is
// summed over these instead.
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
	set := t.varies(body[begin:]).of[v] & t.over(t.divided(kind.Axes)...) &^ t.over(axesOf(crossing)...)
	if set == 0 {
		return nil
	}
	axes := strings.Join(t.names(set), ", ")
	return &errkind.Fault{Op: "manual:", Subject: fmt.Sprintf("result %d of shape %v", leave.Index, x.Shape().Dimensions),
		Reason: fmt.Sprintf("its spec does not name the axis %s, and the devices of that axis may have different values", axes),
		Hint:   "name the axis in the result's spec, or make the value equal with AllReduce, AllGather or Broadcast", Class: errkind.ValueError}
}
