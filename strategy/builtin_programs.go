package strategy

import (
	"context"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/logical"
)

// builtinCall describes one run of a program of this package, such as a copy or a reduction.
type builtinCall struct {
	// name identifies the program, together with the signatures of the variables and values.
	name      string
	values    []Value
	variables []*Variable
	mirrored  bool
	results   []logical.Annotation
	// step builds the program. Its first variables must be the variables of the call.
	step StepFunc
}

// run runs the program. It compiles the program once for each combination of the arguments' shapes,
// dtypes and layouts.
func (c builtinCall) run(ctx context.Context, s *TPUStrategy) ([]Value, error) {
	if err := RefuseTracing(ctx, c.name, fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	if err := s.checkRunnable("running", c.name); err != nil {
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
		name += " " + v.programKey()
	}
	s.mu.Lock()
	f := s.builtins[name]
	if f == nil {
		callName, variables, build := c.name, c.variables, c.step // the program does not retain the values
		f = s.Function(func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
			for _, v := range variables { // other calls pass their variables in this order
				rc.capture(callName, v)
			}
			return build(rc, in)
		}, FunctionOptions{Name: c.name, mirroredResults: c.mirrored, own: true, Results: c.results})
		s.builtins[name] = f
	}
	s.mu.Unlock()
	values := slices.Clone(c.values)
	for i, v := range values {
		if v.base().only != nil {
			whole, err := v.base().copyToAllDevices(ctx)
			if err != nil {
				return nil, err
			}
			defer whole.Close()
			values[i] = whole
		}
	}
	p, err := f.program(ctx, values, purposeRun)
	if err != nil {
		return nil, err
	}
	return p.run(ctx, values, c.variables...)
}

func (c builtinCall) runMirrored(ctx context.Context, s *TPUStrategy) (*Mirrored, error) {
	results, err := c.run(ctx, s)
	if err != nil {
		return nil, err
	}
	return results[0].(*Mirrored), nil
}

// copyMirrored copies a value that is equal on all replicas from the devices to new device buffers.
// The annotation a splits the copy over the logical devices.
func copyMirrored(ctx context.Context, value Value, a logical.Annotation) (*Mirrored, error) {
	v, err := copyValue(ctx, value, true, a)
	if err != nil {
		return nil, err
	}
	return v.(*Mirrored), nil
}

// copyValue copies a value to new buffers on the same devices. The annotation a splits the copy
// over the logical devices.
func copyValue(ctx context.Context, value Value, mirrored bool, a logical.Annotation) (Value, error) {
	results, err := builtinCall{
		name: "copy", values: []Value{value}, mirrored: mirrored, results: oneAnnotation(a),
		step: func(_ *ReplicaContext, in []*graph.Node) []*graph.Node { return in },
	}.run(ctx, value.base().strategy)
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

func oneAnnotation(a logical.Annotation) []logical.Annotation { return []logical.Annotation{a} }
