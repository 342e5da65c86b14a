package stepfile

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// describeVariable formats those properties of a variable that must be the same when a compiled
// step is saved and loaded.
func describeVariable(shape shapes.Shape, sync strategy.VariableSynchronization,
	aggregation strategy.VariableAggregation, a logical.Annotation, localWrites bool) string {
	text := fmt.Sprintf("%s%v, %s, %s, laid out as %s", shape.DType, shape.Dimensions, sync, aggregation, a)
	if localWrites {
		text += ", with local writes"
	}
	return text
}

// findDistributed returns, for each argument of the step, the distributed variable to use, or nil
// if the argument is not a distributed variable. It looks up the variable's name in given and then
// in the strategy. The error lists all variables that are missing or do not match the step.
func findDistributed(s *strategy.TPUStrategy, step *savedstep.Step,
	given map[string]*strategy.Variable) ([]*strategy.Variable, error) {
	found := make([]*strategy.Variable, len(step.Arguments))
	unused := maps.Clone(given)
	names := map[*strategy.Variable]string{}
	var errs []error
	misfit := func(name string, cause error, hint, format string, args ...any) {
		errs = append(errs, newError(savedstep.Mismatch{Problem: savedstep.BadVariable, Variable: name,
			Detail: fmt.Sprintf(format, args...), Hint: hint, Err: cause}))
	}
	const another = "give another variable in stepfile.Options.Variables"
	for i, a := range step.Module.Arguments {
		d := step.Arguments[i].Distributed
		if d == nil {
			continue
		}
		want := describeVariable(shapes.Make(a.DType, a.LocalDims...), strategy.VariableSynchronization(d.Synchronization),
			strategy.VariableAggregation(d.Aggregation), a.Annotation, d.LocalWrites)
		delete(unused, a.Name)
		v, isGiven := given[a.Name]
		if !isGiven {
			all := slices.DeleteFunc(s.DistributedVariables(), func(v *strategy.Variable) bool { return v.Path() != a.Name })
			if len(all) != 1 {
				problem, hint := "there is none of this name in the strategy", "make it with NewVariable"
				if len(all) > 1 {
					problem, hint = fmt.Sprintf("%d variables of the strategy have this name", len(all)),
						"close the others"
				}
				misfit(a.Name, nil, hint+", or give one in stepfile.Options.Variables", "%s; the step has %s",
					problem, want)
				continue
			}
			v = all[0]
		}
		if v == nil {
			misfit(a.Name, nil, another, "stepfile.Options.Variables has nil for this name; the step has %s", want)
			continue
		}
		is := describeVariable(v.Shape(), v.Synchronization(), v.Aggregation(), v.Annotation(), v.LocalWrites())
		mismatchErr := engine.Internal(s).CheckVariable(v)
		switch other, twice := names[v]; {
		case v.Strategy() != s:
			misfit(a.Name, mismatchErr, "", "")
		case is != want:
			misfit(a.Name, nil, "make it as it was when the step was saved", "it is %s here, and %s in the step",
				is, want)
		case twice:
			misfit(a.Name, nil, another, "it is given for %q already, and the step has two", other)
		case mismatchErr != nil:
			misfit(a.Name, mismatchErr, "", "")
		default:
			names[v], found[i] = a.Name, v
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		misfit(name, nil, "leave it out",
			"stepfile.Options.Variables gives it, and the step has no distributed variable of this name")
	}
	return found, errors.Join(errs...)
}
