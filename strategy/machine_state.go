package strategy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"weak"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// What package strategy/generate uses of the strategy: state that lives on the devices between
// launches, and launches that run a step as often as it says.

// stateVariable describes a variable of [machine.State].
type stateVariable struct {
	name       string
	shape      shapes.Shape
	annotation logical.Annotation
}

// StateVariable describes a variable of [machine.State]: its name in errors and reports, the shape
// of a replica's tensor, and how that is split over the logical devices.
func (m *machine) StateVariable(name string, shape shapes.Shape, a logical.Annotation) stateVariable {
	return stateVariable{name, shape, a}
}

// State makes variables of which each replica has its own, zero at first. They are made on the
// devices, and only described ahead of time. They are no variables of the scope: no checkpoint, no
// rule and no optimizer sees them. Close releases one.
func (m *machine) State(ctx context.Context, of ...stateVariable) ([]*Variable, error) {
	s := m.strategy()
	all := make([]*Variable, len(of))
	var key strings.Builder
	var layouts []logical.Annotation
	for i, d := range of {
		v := &Variable{strategy: s, path: d.name, dtype: d.shape.DType, shape: slices.Clone(d.shape.Dimensions), annotation: d.annotation,
			synchronization: OnRead, unlisted: true}
		if err := v.annotation.ValidateOn(s.axes, d.name, v.shape); err != nil {
			return nil, &Error{Op: fmt.Sprintf("strategy: state %q", d.name), Reason: "its annotation does not fit", Err: err, Class: ValueError}
		}
		l, err := v.layout()
		if err != nil {
			return nil, fault.Of(fmt.Sprintf("state %q", d.name), err, "")
		}
		v.shardBytes = l.PartBytes
		all[i], layouts = v, append(layouts, d.annotation)
		key.WriteString(" " + d.shape.String())
	}
	if s.devices != nil {
		zeros, err := s.call(ctx, builtinCall{name: "zeros" + key.String(), results: layouts,
			step: func(rc *ReplicaContext, _ []*captured, _ []*graph.Node) (nodes []*graph.Node) {
				for _, d := range of {
					nodes = append(nodes, graph.Zeros(rc.graph, d.shape))
				}
				return nodes
			}})
		if err != nil {
			return nil, err
		}
		for i, v := range all {
			v.buffers = zeros[i].base().surrender()
		}
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.own = append(s.own, all...)
	}
	s.mu.Unlock()
	if closed {
		for _, v := range all {
			_ = v.free()
		}
		return nil, ErrClosed
	}
	return all, nil
}

// surrender closes a value and gives its buffers to the caller.
func (v *distributed) surrender() []*pjrt.Buffer {
	v.strategy.drop(weak.Make(v))
	v.mu.Lock()
	defer v.mu.Unlock()
	buffers := v.buffers
	v.buffers, v.closed = nil, true
	return buffers
}

// AgainFunction returns a function whose launch runs the step once, and again as long as the step's
// first result is true, a scalar of Bool, and most times at most. The step's variables carry over
// from each time to the next, and the results are those of the last. The first result must be the
// same on all replicas.
func (m *machine) AgainFunction(step StepFunc, opts FunctionOptions, most int) *Function {
	f := m.strategy().Function(step, opts)
	f.again = most
	return f
}

// againAlike refuses a step whose replicas may disagree whether to go on, and one that runs on
// batches of several steps.
func (t *trace) againAlike(steps int) error {
	if steps > 0 {
		return fault.New(ValueError, "run", "give it one batch", "it says itself how often it runs, and its batches are for %d steps", steps)
	}
	if t.own == 0 || !t.alike[0].always {
		return fault.New(ValueError, "result 0", "reduce it over the replicas", "it says whether the step runs again, and may differ between replicas")
	}
	return nil
}

// Outline is a mirrored value without contents, for [Function.Compiled].
func (m *machine) Outline(shape shapes.Shape) (Value, error) {
	return m.strategy().abstract(shape, false, false, logical.Annotation{})
}
