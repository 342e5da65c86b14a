package module

import (
	"fmt"

	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering"
)

// Differs reports which of the nodes may differ between replicas, given the
// parameters of the step that do. The replica id does; what an all-reduce or an
// all-gather returns does not. It looks at what the step is made of, not at
// numbers: a node may be reported that is equal everywhere, such as what a loop
// with a collective in it returns.
func Differs(nodes, parameters []*graph.Node) ([]bool, error) {
	all := make([]bool, len(nodes))
	if len(nodes) == 0 {
		return all, nil
	}
	t, ok := nodes[0].Graph().Backend().(*Trace)
	if !ok || t.opts.Replicas == 1 {
		return all, nil
	}
	differs := map[string]bool{}
	if id := nodes[0].Graph().GetParameterByName(ReplicaIDName); id != nil {
		parameters = append([]*graph.Node{id}, parameters...)
	}
	for _, p := range parameters {
		name, err := t.name(p)
		if err != nil {
			return nil, err
		}
		differs[name] = true
	}
	t.follow(t.main().Statements, differs)
	for i, node := range nodes {
		name, err := t.name(node)
		if err != nil {
			return nil, err
		}
		all[i] = differs[name]
	}
	return all, nil
}

// name returns a node's name in the step function.
func (t *Trace) name(node *graph.Node) (name string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("module: node %s is none of the step: %v", node, r)
		}
	}()
	t.pending = func(_ *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		name = x.String()
		return x, nil
	}
	graph.Identity(node)
	return name, nil
}

// follow adds what differs among the statements' results.
func (t *Trace) follow(statements []*stablehlo.Statement, differs map[string]bool) {
	for _, s := range statements {
		if number, ok := s.Attributes[markerAttribute].(string); ok {
			if scattered, ok := t.across[number]; ok {
				differs[s.Outputs[0].String()] = scattered
				continue
			}
		}
		reads := uses(s)
		if len(s.FunctionParameters) > 0 && branches(s) {
			// A branch differs where the predicate or what it returns does.
			reads = reads[:len(s.Inputs)]
			for _, f := range s.FunctionParameters {
				t.follow(f.Statements, differs)
				reads = append(reads, returned(f)...)
			}
		}
		for _, name := range reads {
			if differs[name] {
				for _, out := range s.Outputs {
					differs[out.String()] = true
				}
				break
			}
		}
	}
}

// branches reports whether a statement's closures run at most once and take no
// arguments.
func branches(s *stablehlo.Statement) bool {
	for _, f := range s.FunctionParameters {
		if len(f.Inputs) > 0 {
			return false
		}
	}
	return true
}

// returned lists what a closure returns.
func returned(f *stablehlo.Function) []string {
	var names []string
	for _, v := range f.Outputs {
		names = append(names, v.String())
	}
	if n := len(f.Statements); n > 0 {
		for _, v := range f.Statements[n-1].Inputs {
			names = append(names, v.String())
		}
	}
	return names
}
