package spmd

import (
	"fmt"
	"slices"

	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Differs reports for each of the nodes of a step whether it may differ between replicas, given the
// parameters that differ. The replica's number differs; the results of an all-reduce and of an
// all-gather do not. Differs goes by the ops that make a node and not by numbers, so that it
// reports some nodes that are equal everywhere, such as the results of a loop with a collective in
// it.
func Differs(nodes, parameters []*graph.Node) ([]bool, error) {
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
	return t.differing(nodes, parameters)
}

// differing is Differs for the given parameters alone.
func (t *Trace) differing(nodes, parameters []*graph.Node) ([]bool, error) {
	all, differs := make([]bool, len(nodes)), map[*ir.Value]bool{}
	for _, p := range parameters {
		v, err := t.value(p)
		if err != nil {
			return nil, err
		}
		differs[v] = true
	}
	body := t.main().IR().Body
	states := states(body)
	for follow(body, differs); spread(states, differs); {
		follow(body, differs)
	}
	for i, node := range nodes {
		v, err := t.value(node)
		if err != nil {
			return nil, err
		}
		all[i] = differs[v]
	}
	return all, nil
}

// value returns a node's value in the step function.
func (t *Trace) value(node *graph.Node) (v *ir.Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			cause, _ := r.(error)
			err = &errkind.Fault{Op: "module: Differs", Subject: fmt.Sprintf("node %s", node), Reason: "it is none of the step", Hint: "give nodes that the step made",
				Class: errkind.InvalidArgumentError, Err: cause}
		}
	}()
	t.emit(node, func(_ *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		v = t.main().Value(x)
		return x, nil
	}, nil)
	return v, nil
}

// states are the states of loops: what a run begins with, and what it gives to the next.
func states(body []*ir.Statement) (pairs [][2]*ir.Value) {
	first := map[*region.Pass][]*ir.Value{}
	for _, s := range body {
		switch m := s.Mark.(type) {
		case entered:
			if _, ok := m.pass.In[m.index].(region.Carried); ok {
				first[m.pass] = append(first[m.pass], s.Results[0])
			}
		case left:
			if _, ok := m.pass.Out[m.index].(region.Carried); ok && len(first[m.pass]) > 0 {
				pairs = append(pairs, [2]*ir.Value{first[m.pass][0], s.Operands[0]})
				first[m.pass] = first[m.pass][1:]
			}
		}
	}
	return pairs
}

// spread makes a state differ that differs after a run, and reports whether one began to.
func spread(states [][2]*ir.Value, differs map[*ir.Value]bool) (began bool) {
	for _, s := range states {
		if differs[s[1]] && !differs[s[0]] {
			differs[s[0]], began = true, true
		}
	}
	return began
}

// follow adds what differs among the statements' results.
func follow(statements []*ir.Statement, differs map[*ir.Value]bool) {
	for _, s := range statements {
		if m, ok := s.Mark.(mark); ok {
			if scattered, known := m.differs(); known {
				differs[s.Results[0]] = scattered
				continue
			}
		}
		found := false
		read := func(v *ir.Value) { found = found || differs[v] }
		if len(s.Regions) > 0 && branches(s) {
			// A branch differs where the predicate or what it returns does.
			for _, v := range s.Operands {
				read(v)
			}
			for _, r := range s.Regions {
				follow(r.Body, differs)
				if n := len(r.Body); n > 0 {
					for _, v := range r.Body[n-1].Operands {
						read(v)
					}
				}
			}
		} else {
			s.Reads(read)
		}
		if found {
			for _, v := range s.Results {
				differs[v] = true
			}
		}
	}
}

// branches reports whether a statement's regions run at most once and take no arguments.
func branches(s *ir.Statement) bool {
	return !slices.ContainsFunc(s.Regions, func(r *ir.Region) bool { return len(r.Arguments) > 0 })
}
