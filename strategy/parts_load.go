package strategy

import (
	"context"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// VariableParts is a value for a variable of a store.
type VariableParts struct {
	// Path is the variable's path, such as "/hidden/dense/weights".
	Path string
	// Parts is the value, of the variable's shape and dtype.
	Parts Parts
}

// Loaded says what [Variables.Load] did.
type Loaded struct {
	// OnDevices are the paths of the variables that have their values on the devices, and InStore
	// those whose values wait in the store for the first step that uses them.
	OnDevices, InStore []string
	// DeviceBytes is what this process's devices hold of the variables that are on the devices.
	DeviceBytes int
	// StagedBytes is the most that the host held at a time on the way to them.
	StagedBytes int
}

// LoadError reports a load that ended early, and what has changed.
type LoadError struct {
	// Loaded are the paths of the variables that have their new values. All others have those from
	// before.
	Loaded []string
	// Err is the cause.
	Err error
}

// Error returns "strategy: load: N variables have new values: cause".
func (e *LoadError) Error() string {
	reason := "no variable has changed"
	if len(e.Loaded) > 0 {
		reason = fmt.Sprintf("%d variables have their new values, %q first; the others have not changed", len(e.Loaded), e.Loaded[0])
	}
	return errkind.Text("strategy: load", reason, e.Err, "")
}

// Kind returns the kind of the cause.
func (e *LoadError) Kind() errkind.Kind { return errkind.Or(e.Err, RuntimeError) }

// Unwrap returns the cause.
func (e *LoadError) Unwrap() error { return e.Err }

// Load gives variables of the store values of which each process reads the parts that its devices
// hold, and no more. Variables that a traced step uses get them on the devices at once. For others
// the store gets a [TensorOfParts], whose parts are read when the first step that uses the variable
// runs; a variable that the store lacks is made, as one that is trained.
//
// A part is read while the one before it is copied to the devices. The host holds a sixteenth of
// its devices' bytes on the way, or a single part that is larger. Where devices have the host's
// memory, as the CPU plugin's, parts of 256 kB and more that one device holds are read to where they
// stay. Variables that have no value yet get theirs all together, or none after an error; of the
// others each is replaced in turn, beside its old value. All processes call Load, each for its own
// devices.
//
// Errors: [*LoadError], which says what has changed; [*ContextError] where a step is traced.
func (vs *Variables) Load(ctx context.Context, values []VariableParts) (Loaded, error) {
	if err := RefuseTracing(ctx, "load", fault.InsteadOfCopying); err != nil {
		return Loaded{}, err
	}
	s := vs.strategy
	if err := s.runnable("loading variables"); err != nil {
		return Loaded{}, err
	}
	ctx, done, err := vs.exclusive(ctx)
	if err != nil {
		return Loaded{}, &LoadError{Err: fault.Of("waiting for the store", err, "")}
	}
	defer done()
	if err := s.check(); err != nil {
		return Loaded{}, err
	}
	first, later, stored, err := vs.sortLoads(values)
	if err != nil {
		return Loaded{}, &LoadError{Err: err}
	}
	var report Loaded
	add := func(loads []*variableLoad) error {
		staged, err := s.fill(ctx, loads, 1)
		report.StagedBytes = max(report.StagedBytes, staged)
		for _, x := range loads {
			if err != nil {
				_ = x.Into.Close()
				continue
			}
			if err = x.variable.replaceBuffers(x.Into); err == nil {
				report.OnDevices = append(report.OnDevices, x.variable.path)
				report.DeviceBytes += x.LocalBytes()
			}
		}
		if err != nil {
			return &LoadError{Loaded: report.OnDevices, Err: err}
		}
		return nil
	}
	if err := add(first); err != nil {
		return Loaded{}, err
	}
	for _, x := range later {
		if err := add([]*variableLoad{x}); err != nil {
			return Loaded{}, err
		}
	}
	for _, x := range stored {
		if err := vs.hold(x); err != nil {
			return Loaded{}, &LoadError{Loaded: slices.Concat(report.OnDevices, report.InStore), Err: err}
		}
		report.InStore = append(report.InStore, x.Path)
	}
	return report, nil
}

// sortLoads checks the values, and says which variables wait for their first value on the devices,
// which have one there, and which are in the store only.
func (vs *Variables) sortLoads(values []VariableParts) (first, later []*variableLoad, stored []VariableParts, err error) {
	seen := map[string]bool{}
	for _, x := range values {
		name := fmt.Sprintf("variable %q", x.Path)
		switch {
		case x.Parts == nil:
			return nil, nil, nil, fault.New(ValueError, name, "give its parts", "no value")
		case x.Path == "" || x.Path[0] != '/':
			return nil, nil, nil, fault.New(ValueError, name, `paths begin with "/"`, "it has no path of a store")
		case seen[x.Path]:
			return nil, nil, nil, fault.New(ValueError, name, "give each variable one value", "it is given twice")
		}
		seen[x.Path] = true
		v, placed := vs.Lookup(x.Path)
		if !placed {
			if held := vs.store.GetVariable(x.Path); held != nil && !held.Shape().Equal(x.Parts.Shape()) {
				return nil, nil, nil, fault.New(ValueError, name, "give parts of its shape and dtype", "parts of %s for a variable of %s", x.Parts.Shape(), held.Shape())
			}
			stored = append(stored, x)
			continue
		}
		load, err := v.load(x.Parts)
		if err != nil {
			return nil, nil, nil, err
		}
		if v.waiting.Load() != nil {
			first = append(first, load)
		} else {
			later = append(later, load)
		}
	}
	return first, later, stored, nil
}

// hold gives the store a value, and the variable too if it lacks it.
func (vs *Variables) hold(x VariableParts) error {
	var err error
	value := TensorOfParts(x.Parts)
	if v := vs.store.GetVariable(x.Path); v != nil {
		err = v.SetValue(value)
	} else {
		_, err = vs.store.CreateVariable(x.Path, value)
	}
	if err != nil {
		return fault.Of(fmt.Sprintf("variable %q", x.Path), err, "")
	}
	return nil
}

// variableLoad is a variable's value on its way to this process's devices.
type variableLoad struct {
	variable *Variable
	mesh.Load
}

// load returns the loading of the variable.
func (v *Variable) load(p Parts) (*variableLoad, error) {
	name := fmt.Sprintf("variable %q", v.path)
	if !p.Shape().Equal(v.Shape()) {
		return nil, fault.New(ValueError, name, "give parts of its shape and dtype", "parts of %s for a variable of %s", p.Shape(), v.Shape())
	}
	l, err := v.layout()
	if err != nil {
		return nil, fault.Of(name, err, "")
	}
	return &variableLoad{v, mesh.Load{Name: name, Layout: l, From: p}}, nil
}

// fill brings values to this process's devices, beside those that the variables have; see
// [mesh.Devices.Fill].
func (s *TPUStrategy) fill(ctx context.Context, all []*variableLoad, readers int) (staged int, err error) {
	loads := make([]*mesh.Load, len(all))
	for i, x := range all {
		loads[i] = &x.Load
	}
	return s.devices.Fill(ctx, loads, readers)
}

// replaceBuffers gives the variable other buffers, and closes those that it has.
func (v *Variable) replaceBuffers(fresh mesh.Buffers) error {
	s := v.strategy
	s.machine.Launch.Lock()
	defer s.machine.Launch.Unlock()
	if err := v.live(); err != nil {
		_ = fresh.Close()
		return err
	}
	return v.swap(fresh)
}

// swap is replaceBuffers of a live variable, under machine.Launch.
func (v *Variable) swap(fresh mesh.Buffers) error {
	if v.buffers == nil {
		v.buffers = fresh
		v.waiting.Store(nil)
		return nil
	}
	// Bound launches hold the buffers' addresses until they see a new generation.
	err := v.buffers.Close()
	copy(v.buffers, fresh)
	v.strategy.generation++
	return err
}
