package strategy

import (
	"context"
	"errors"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// SavedStep converts the step to the contents of a step file. fail creates the error for a step
// that cannot be saved.
func (m internalStep) SavedStep(ctx context.Context, fail savedstep.NewError) (*savedstep.Step, error) {
	c, p := m.CompiledStep, m.program
	s, opts := p.function.strategy, p.function.opts
	if c.Program == nil {
		return nil, fail(savedstep.Mismatch{Problem: savedstep.Unsupported, Detail: "the runtime gives no compiled program"})
	}
	if len(p.borrowed) > 0 {
		return nil, fail(savedstep.Mismatch{Problem: savedstep.Unsupported, Variable: p.borrowed[0].path,
			Detail: "it is another strategy's"})
	}
	step := &savedstep.Step{
		Name: c.Name, Module: c.Module, Updates: p.updates, PaddedResults: p.paddedResults, Annotations: opts.Arguments,
		SplitBatch: opts.SplitBatch, LocalBatch: opts.LocalBatch, Padding: int(opts.Padding),
		Training: opts.Training, Mirrored: opts.mirroredResults, Metrics: p.function.metrics,
	}
	if g := p.function.guard; g != nil {
		step.Guard = g.Saved()
	}
	var err error
	if step.Target, err = (internalStrategy{s}).Target(fail); err != nil {
		return nil, err
	}
	next := 0
	for i, a := range c.Module.Arguments {
		argument := savedstep.Argument{Variable: p.variables[i] != nil}
		if a.IsConstant {
			argument.Constant, err = p.variables[i].constantBytes(ctx)
		} else {
			argument.Distributed, err = p.savedVariable(i, fail)
		}
		if err != nil {
			return nil, err
		}
		if a.PerStep {
			step.Steps = a.GlobalDims[0]
		}
		if !argument.Variable {
			if argument.Ragged = p.ragged[next]; argument.Ragged {
				argument.Sizes = p.padding.sizeIndices[next]
			}
			next++
		}
		step.Arguments = append(step.Arguments, argument)
	}
	if step.Code, err = p.serialize(ctx, c); err != nil {
		return nil, fault.Wrap("saving "+c.Name, err, "")
	}
	return step, nil
}

// savedVariable describes argument i if it is a variable of NewVariable, and otherwise returns nil.
// It returns an error if two variables of the step have the same name, because a loaded step finds
// its variables by name.
func (p *program) savedVariable(i int, fail savedstep.NewError) (*savedstep.Variable, error) {
	s, store, v := p.function.strategy, p.function.opts.Store, p.variables[i]
	inStore := func(v *Variable) bool {
		if store == nil {
			return false
		}
		found, ok := s.Variables(store).Lookup(v.path)
		return ok && found == v
	}
	if v == nil || inStore(v) {
		return nil, nil
	}
	for _, other := range p.variables[:i] {
		if other != nil && other != v && other.path == v.path && !inStore(other) {
			return nil, fail(savedstep.Mismatch{Problem: savedstep.BadVariable, Variable: v.path,
				Detail: "two of the step's distributed variables have this name",
				Hint:   "give each its own with VariableOptions.Name"})
		}
	}
	return &savedstep.Variable{Synchronization: int(v.synchronization), Aggregation: int(v.aggregation),
		LocalWrites: v.localWrites}, nil
}

func (p *program) serialize(ctx context.Context, c *CompiledStep) ([]byte, error) {
	s := p.function.strategy
	if p.code != nil {
		return p.code, nil
	}
	code, err := c.Program.Serialize()
	if !errors.Is(err, pjrt.ErrDeserialized) {
		return code, err
	}
	// The program was deserialized from a cache and cannot be serialized again.
	x, err := s.runtime.System.Client().Compile(ctx, pjrt.Program{Code: p.module.Text, Trusted: true},
		s.runtime.Options(p.module.Replicas))
	if err != nil {
		return nil, err
	}
	code, err = x.Executable().Serialize()
	return code, errors.Join(err, x.Close())
}

// Target describes the plugin and the devices of the strategy. The description is the same ahead of
// time and on a live system.
func (m internalStrategy) Target(fail savedstep.NewError) (t savedstep.Target, err error) {
	s := m.TPUStrategy
	topology := s.assignment.Topology()
	t = savedstep.Target{Topology: topology.Name(), Mesh: topology.MeshShape(), IDs: s.assignment.DeviceIDs(),
		Coordinates: s.assignment.CoreAssignment()}
	if s.slice != nil {
		t.Devices = s.slice.Info().Kind
		t.Plugin, err = s.slice.Plugin().Identity(s.slice.Description().PlatformName(), "")
		return t, err
	}
	client := s.runtime.System.Client()
	if client == nil {
		return t, fail(savedstep.Mismatch{Problem: savedstep.Unsupported, Detail: "the system has no client of a plugin"})
	}
	t.Devices = s.runtime.All[0].Kind()
	t.Plugin, err = client.Plugin().Identity(client.PlatformName(), "")
	return t, err
}
