package strategy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy/internal/saved"
)

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
