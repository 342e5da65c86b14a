package strategy

import (
	"context"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// builtin returns the strategy's own function of a name, making it once.
func (s *TPUStrategy) builtin(name string, make func() *Function) *Function {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.builtins[name]
	if !ok {
		f = make()
		s.builtins[name] = f
	}
	return f
}

// builtinCall is one run of a small program of the strategy's own.
type builtinCall struct {
	// name keys the program, together with the variables' and values' kinds.
	name      string
	values    []Value
	variables []*Variable
	// mirrored results are the same on every replica.
	mirrored bool
	results  []logical.Annotation
	step     func(rc *ReplicaContext, variables []*captured, in []*graph.Node) []*graph.Node
}

// call compiles a program once for each kind of variable and runs it on these.
func (s *TPUStrategy) call(ctx context.Context, c builtinCall) ([]Value, error) {
	if err := RefuseTracing(ctx, c.name, fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	name := c.name
	if c.mirrored {
		name += " mirrored"
	}
	for _, a := range c.results {
		name += " " + a.String()
	}
	for _, v := range c.variables {
		name += " " + v.key()
	}
	callName, variables, build := c.name, c.variables, c.step // the program does not hold the values
	f := s.builtin(name, func() *Function {
		step := func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
			held := make([]*captured, len(variables))
			for i, v := range variables {
				held[i] = rc.capture(callName, v)
			}
			return build(rc, held, in)
		}
		return s.Function(step, FunctionOptions{Name: c.name, mirroredResults: c.mirrored, own: true, Results: c.results})
	})
	p, err := f.program(ctx, c.values, toRun)
	if err != nil {
		return nil, err
	}
	return p.run(ctx, c.values, c.variables...)
}

func one(a logical.Annotation) []logical.Annotation { return []logical.Annotation{a} }
