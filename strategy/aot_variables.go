package strategy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/module"
)

// LoadOptions say what a loaded step runs on. The zero value finds the step's
// variables by their names.
type LoadOptions struct {
	// Variables are distributed variables for the step, those of
	// [TPUStrategy.NewVariable], by the names that the step was saved with: a
	// variable with another name may take a place. A name that is missing here is
	// looked for among [TPUStrategy.DistributedVariables]; one that the step does not
	// have is an error.
	Variables map[string]*Variable
	// SHA256 is the hash that the whole file must have, in hexadecimal digits, as sha256sum
	// says it; "" takes any.
	SHA256 string
}

// stepVariable says what a distributed variable is beside its name, dtype, shape and
// annotation, which it has as an argument of the step.
type stepVariable struct {
	Synchronization string `json:"synchronization"`
	Aggregation     string `json:"aggregation"`
	LocalWrites     bool   `json:"local_writes,omitempty"`
}

func variableOut(v *Variable) *stepVariable {
	return &stepVariable{Synchronization: v.synchronization.String(), Aggregation: v.aggregation.String(), LocalWrites: v.localWrites}
}

// in is a variable like the one that was saved, without buffers.
func (d *stepVariable) in(a module.Placed) (*Variable, error) {
	v := &Variable{path: a.Name, dtype: a.DType, shape: a.Local, annotation: a.Annotation, localWrites: d.LocalWrites}
	for _, s := range []VariableSynchronization{OnWrite, OnRead} {
		if s.String() == d.Synchronization {
			v.synchronization = s
		}
	}
	if v.synchronization == SyncAuto {
		return nil, fmt.Errorf("tensor %q: synchronization %q", a.Name, d.Synchronization)
	}
	for v.aggregation = AggregateNone; v.aggregation.String() != d.Aggregation; v.aggregation++ {
		if v.aggregation == AggregateFirst {
			return nil, fmt.Errorf("tensor %q: aggregation %q", a.Name, d.Aggregation)
		}
	}
	if v.perReplica() != a.PerReplica {
		return nil, fmt.Errorf("tensor %q: a %s variable with per-replica storage %t", a.Name, v.synchronization, a.PerReplica)
	}
	return v, nil
}

// kind describes a variable as far as a compiled step depends on it.
func (v *Variable) kind() string {
	text := fmt.Sprintf("%s%v, %s, %s, laid out as %s", v.dtype, v.shape, v.synchronization, v.aggregation, v.annotation)
	if v.localWrites {
		text += ", with local writes"
	}
	return text
}

// saveVariable describes an argument that is a variable. Two distributed variables
// of one name could not be told apart when the step is loaded.
func (s *TPUStrategy) saveVariable(p *program, i int, t *stepTensor) error {
	v := p.variables[i]
	if v == nil || s.inStore(p.function.opts.Store, v) {
		return nil
	}
	for _, other := range p.variables[:i] {
		if other != nil && other != v && other.path == v.path && !s.inStore(p.function.opts.Store, other) {
			return &StepFileError{Reason: StepVariable, Variable: v.path,
				Detail: "two of the step's distributed variables have this name; give each its own with VariableOptions.Name"}
		}
	}
	t.Distributed = variableOut(v)
	return nil
}

// distributedVariables finds a loaded step's distributed variables: by argument, nil
// for what is none. The errors name every variable that does not fit.
func (s *TPUStrategy) distributedVariables(h stepHeader, m *module.Module, opts LoadOptions) ([]*Variable, error) {
	found := make([]*Variable, len(m.Arguments))
	unused := maps.Clone(opts.Variables)
	taken := map[*Variable]string{}
	var errs []error
	fail := func(name string, cause error, format string, args ...any) {
		errs = append(errs, &StepFileError{Reason: StepVariable, Variable: name, Detail: fmt.Sprintf(format, args...), Err: cause})
	}
	for i, a := range m.Arguments {
		d := h.Arguments[i].Distributed
		if d == nil {
			continue
		}
		want, err := d.in(a)
		if err != nil {
			return nil, &StepFileError{Reason: StepDamaged, Err: err}
		}
		delete(unused, a.Name)
		v, given := opts.Variables[a.Name]
		if !given {
			var all []*Variable
			if all = s.named(a.Name); len(all) != 1 {
				problem, hint := "there is none of this name in the strategy", "make it with NewVariable"
				if len(all) > 1 {
					problem, hint = fmt.Sprintf("%d variables of the strategy have this name", len(all)), "close the others"
				}
				fail(a.Name, nil, "%s; the step has %s: %s, or give one in LoadOptions.Variables", problem, want.kind(), hint)
				continue
			}
			v = all[0]
		}
		switch other, again := taken[v]; {
		case v == nil:
			fail(a.Name, nil, "LoadOptions.Variables has no variable for this name; the step has %s", want.kind())
		case v.strategy != s:
			fail(a.Name, s.ownsVariable("load step", v), "")
		case v.kind() != want.kind():
			fail(a.Name, nil, "it is %s here, and %s in the step", v.kind(), want.kind())
		case again:
			fail(a.Name, nil, "it is given for %q already, and the step has two", other)
		default:
			if err := s.open(v); err != nil {
				fail(a.Name, err, "")
				continue
			}
			taken[v], found[i] = a.Name, v
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		fail(name, nil, "LoadOptions.Variables gives it, and the step has no distributed variable of this name")
	}
	return found, errors.Join(errs...)
}

// named returns the distributed variables of a name.
func (s *TPUStrategy) named(name string) (all []*Variable) {
	for _, v := range s.DistributedVariables() {
		if v.path == name {
			all = append(all, v)
		}
	}
	return all
}

// open reports a variable that was closed.
func (s *TPUStrategy) open(v *Variable) error {
	s.launch.Lock()
	defer s.launch.Unlock()
	return v.live()
}
