package strategy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/saved"
)

// Parts takes the step apart.
func (m innerStep) Parts(ctx context.Context, fail saved.Fail) (*saved.Step, error) {
	c, p := m.CompiledStep, m.program
	s, opts := p.function.strategy, p.function.opts
	if c.Program == nil {
		return nil, fail(saved.Misfit{Problem: saved.Unsupported, Detail: "the runtime gives no compiled program"})
	}
	if len(p.borrowed) > 0 {
		return nil, fail(saved.Misfit{Problem: saved.Unsupported, Variable: p.borrowed[0].path, Detail: "it is another strategy's"})
	}
	step := &saved.Step{
		Name: c.Name, Module: c.Module, Updates: p.updates, Cut: p.cut, Layouts: opts.Arguments,
		SplitBatch: opts.SplitBatch, LocalBatch: opts.LocalBatch, Padding: int(opts.Padding),
		Training: opts.Training, Mirrored: opts.mirroredResults, Metrics: p.function.metrics,
	}
	if g := p.function.guard; g != nil {
		step.Guard = g.Saved()
	}
	var err error
	if step.Target, err = (innerStrategy{s}).Target(fail); err != nil {
		return nil, err
	}
	next := 0
	for i, a := range c.Module.Arguments {
		argument := saved.Argument{Variable: p.variables[i] != nil}
		if argument.Distributed, err = p.savedVariable(i, fail); err != nil {
			return nil, err
		}
		if a.PerStep {
			step.Steps = a.Global[0]
		}
		if !argument.Variable {
			if argument.Ragged = p.ragged[next]; argument.Ragged {
				argument.Sizes = p.padding.of[next]
			}
			next++
		}
		step.Arguments = append(step.Arguments, argument)
	}
	if step.Code, err = p.serialize(ctx, c); err != nil {
		return nil, fault.Of("saving "+c.Name, err, "")
	}
	return step, nil
}

// savedVariable describes an argument that is a distributed variable; nil is another argument. Two
// distributed variables of one name could not be told apart when the step is loaded.
func (p *program) savedVariable(i int, fail saved.Fail) (*saved.Variable, error) {
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
			return nil, fail(saved.Misfit{Problem: saved.BadVariable, Variable: v.path,
				Detail: "two of the step's distributed variables have this name", Hint: "give each its own with VariableOptions.Name"})
		}
	}
	return &saved.Variable{Synchronization: int(v.synchronization), Aggregation: int(v.aggregation), LocalWrites: v.localWrites}, nil
}

// serialize writes the program out, as the compiler made it.
func (p *program) serialize(ctx context.Context, c *CompiledStep) ([]byte, error) {
	s := p.function.strategy
	if p.code != nil {
		return p.code, nil
	}
	code, err := c.Program.Serialize()
	if !errors.Is(err, pjrt.ErrDeserialized) {
		return code, err
	}
	// The compiler found it in a cache.
	x, err := s.machine.System.Client().Compile(ctx, pjrt.Program{Code: p.module.Text, Trusted: true}, s.machine.Options(p.module.Replicas))
	if err != nil {
		return nil, err
	}
	code, err = x.Executable().Serialize()
	return code, errors.Join(err, x.Close())
}

// Target names the plugin and the devices of the strategy. Where a slice is described there is no
// client to ask: what both know is compared.
func (m innerStrategy) Target(fail saved.Fail) (t saved.Target, err error) {
	s := m.TPUStrategy
	topology := s.assignment.Topology()
	t = saved.Target{Topology: topology.Name(), Mesh: topology.MeshShape(), IDs: s.assignment.DeviceIDs(), Coordinates: s.assignment.CoreAssignment()}
	if s.slice != nil {
		t.Devices = s.slice.Facts().Kind
		t.Plugin, err = cache.PluginIdentity(s.slice.Plugin(), s.slice.Description().PlatformName(), "")
		return t, err
	}
	client := s.machine.System.Client()
	if client == nil {
		return t, fail(saved.Misfit{Problem: saved.Unsupported, Detail: "the system has no client of a plugin"})
	}
	t.Devices = s.machine.All[0].Kind()
	t.Plugin, err = cache.PluginIdentity(client.Plugin(), client.PlatformName(), "")
	return t, err
}

// savedKind describes a variable of a step that was taken apart, as [Variable.kind] does.
func savedKind(a spmd.ShardedTensor, d *saved.Variable) string {
	v := &Variable{dtype: a.DType, shape: a.Local, annotation: a.Annotation, localWrites: d.LocalWrites,
		synchronization: VariableSynchronization(d.Synchronization), aggregation: VariableAggregation(d.Aggregation)}
	return v.kind()
}

// kind describes a variable as far as a compiled step depends on it.
func (v *Variable) kind() string {
	text := fmt.Sprintf("%s%v, %s, %s, laid out as %s", v.dtype, v.shape, v.synchronization, v.aggregation, v.annotation)
	if v.localWrites {
		text += ", with local writes"
	}
	return text
}

// distributedVariables finds the step's distributed variables: by argument, nil for an argument
// that is none. given take the places of those of the strategy. The errors name every variable that
// does not fit.
func (l *loader) distributedVariables(given map[string]*Variable) ([]*Variable, error) {
	s := l.f.strategy
	found := make([]*Variable, len(l.Arguments))
	unused := maps.Clone(given)
	names := map[*Variable]string{}
	var errs []error
	fail := func(name string, cause error, hint, format string, args ...any) {
		errs = append(errs, l.fail(saved.Misfit{Problem: saved.BadVariable, Variable: name, Detail: fmt.Sprintf(format, args...), Hint: hint, Err: cause}))
	}
	const another = "give another variable in stepfile.Options.Variables"
	for i, a := range l.Module.Arguments {
		d := l.Arguments[i].Distributed
		if d == nil {
			continue
		}
		want := savedKind(a, d)
		delete(unused, a.Name)
		v, isGiven := given[a.Name]
		if !isGiven {
			all := slices.DeleteFunc(s.DistributedVariables(), func(v *Variable) bool { return v.path != a.Name })
			if len(all) != 1 {
				problem, hint := "there is none of this name in the strategy", "make it with NewVariable"
				if len(all) > 1 {
					problem, hint = fmt.Sprintf("%d variables of the strategy have this name", len(all)), "close the others"
				}
				fail(a.Name, nil, hint+", or give one in stepfile.Options.Variables", "%s; the step has %s", problem, want)
				continue
			}
			v = all[0]
		}
		switch other, twice := names[v]; {
		case v == nil:
			fail(a.Name, nil, another, "stepfile.Options.Variables has nil for this name; the step has %s", want)
		case v.strategy != s:
			fail(a.Name, v.ownedBy(s, "load step"), "", "")
		case v.kind() != want:
			fail(a.Name, nil, "make it as it was when the step was saved", "it is %s here, and %s in the step", v.kind(), want)
		case twice:
			fail(a.Name, nil, another, "it is given for %q already, and the step has two", other)
		default:
			s.machine.Launch.Lock()
			err := v.live()
			s.machine.Launch.Unlock()
			if err != nil {
				fail(a.Name, err, "", "")
				continue
			}
			names[v], found[i] = a.Name, v
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		fail(name, nil, "leave it out", "stepfile.Options.Variables gives it, and the step has no distributed variable of this name")
	}
	return found, errors.Join(errs...)
}
