package gomlx

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Executable is a computation that GoMLX has built. If GoMLX did not distribute the computation, it
// runs on all devices, as a program over global tensors. It is compiled at its first execution,
// when the donated arguments are known. A computation that GoMLX distributes runs on the devices
// that GoMLX selects. An Executable is safe for concurrent use.
type Executable struct {
	backend *Backend
	state   *executableState
}

var _ compute.Executable = (*Executable)(nil)

// executableState contains the fields of an Executable. It is a separate object, because the
// Executable's cleanup function must not refer to the Executable.
type executableState struct {
	backend    *Backend
	program    *lowering.Program
	placements []logical.ExplainedSpec // of the parameters

	mu          sync.Mutex
	variants    map[string]*variant // by donated parameters, or by the devices that GoMLX names; nil after Close
	last        *variant            // the variant for lastDonated
	lastDonated []bool
	reports     map[string]error // like variants, if the backend compiles ahead of time
	// isExplained is true after Options.Explain was called for the program.
	isExplained bool
}

// compile implements [lowering.Options.Compile].
func (b *Backend) compile(p *lowering.Program) (compute.Executable, error) {
	for i, s := range slices.Concat(p.Parameters, p.Outputs) {
		if _, err := hostdata.PJRTType(s.DType); err != nil {
			return nil, wrapError("compile", fmt.Sprintf("program %q, shape %d, %s", p.Name, i, s), err)
		}
	}
	state := &executableState{backend: b, program: p, variants: map[string]*variant{}}
	if !state.isDistributed() { // a distributed program has GoMLX's own sharding
		if err := b.checkRules(p); err != nil {
			return nil, wrapError("compile", fmt.Sprintf("program %q", p.Name), err)
		}
	}
	var err error
	if state.placements, err = b.placeParameters(p, state.isDistributed()); err != nil {
		return nil, wrapError("compile", fmt.Sprintf("program %q", p.Name), err)
	}
	if state.isDistributed() {
		if _, err := state.namedVariant(0); err != nil {
			return nil, errors.Join(err, state.Close())
		}
	} else {
		b.warnUnsharded(p, state.placements)
	}
	if err := b.resources.Track(state); err != nil {
		return nil, err
	}
	exe := &Executable{backend: b, state: state}
	runtime.AddCleanup(exe, func(c *executableState) { _ = c.backend.resources.Free(c) }, state)
	return exe, nil
}

// placeParameters returns the placements of the parameters of a program. For a distributed program
// it ignores errors of the rules, because GoMLX's own distribution does not use the rules.
func (b *Backend) placeParameters(p *lowering.Program, distributed bool) (placements []logical.ExplainedSpec,
	err error) {
	isTable := findGatherTables(p)
	for i, name := range p.ParameterNames {
		dims := p.Parameters[i].Dimensions
		if i >= numInputs(p) {
			placements = append(placements, logical.ExplainedSpec{Spec: sharding.Replicated(len(dims)), RuleText: "a constant"})
			continue
		}
		place := PlaceData(b.mesh, dims)
		if isTable[i] && !place.Spec.IsReplicated() {
			place = logical.ExplainedSpec{Spec: sharding.Replicated(len(dims)),
				RuleText: "a table whose rows are gathered"}
		}
		if isVariable(name) {
			place, err = b.opts.Rules.SpecFor(b.mesh, name, dims)
			if of := (*logical.RuleError)(nil); errors.As(err, &of) && !distributed {
				of.File, of.Program = b.opts.RulesName, p.Name
				return nil, err
			}
		}
		placements = append(placements, place)
	}
	return placements, nil
}

// isDistributed reports whether GoMLX itself distributes the program over devices.
func (c *executableState) isDistributed() bool {
	return c.program.Replicas*c.program.Partitions > 1 || c.program.Devices != nil
}

func (c *executableState) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(c.variants)) {
		errs = append(errs, c.variants[key].exe.Close())
	}
	c.variants, c.last = nil, nil
	for _, constant := range c.program.Constants {
		// Constants may belong to another backend, see executeOnHost.
		if buf := constant.Value.(*Buffer); buf.state.backend == c.backend {
			errs = append(errs, buf.Finalize())
		}
	}
	return errors.Join(errs...)
}

// Finalize frees the compiled programs.
func (e *Executable) Finalize() { _ = e.backend.resources.Free(e.state) }

// Inputs returns the names and shapes of the parameters, in order, without the parameters for
// constants.
func (e *Executable) Inputs() (names []string, inputShapes []shapes.Shape) {
	p := e.state.program
	given := numInputs(p)
	return slices.Clone(p.ParameterNames[:given]), slices.Clone(p.Parameters[:given])
}

// Outputs returns the shapes of the results, in order.
func (e *Executable) Outputs() []shapes.Shape { return slices.Clone(e.state.program.Outputs) }

// Execute launches the program and returns its results, which may not be computed yet. Donated
// inputs become invalid. If Execute returns an error for its arguments, donated inputs stay valid.
//
// A program that GoMLX did not distribute accepts and returns global tensors. It runs on all
// devices if defaultDevice is 0, and otherwise only on defaultDevice. For a distributed program,
// inputs and results are ordered by device: all parameters of the first device, then all of the
// second, and so on.
func (e *Executable) Execute(inputs []compute.Buffer, donate []bool,
	defaultDevice compute.DeviceNum) ([]compute.Buffer, error) {
	out, err := e.execute(inputs, donate, defaultDevice)
	runtime.KeepAlive(e)
	runtime.KeepAlive(inputs)
	if err != nil {
		return nil, wrapError("execute", fmt.Sprintf("program %q", e.state.program.Name), err)
	}
	if l, ok := e.backend.opts.Log.(*prefixWriter); ok {
		l.drawn.Store(true)
	}
	return out, nil
}

func (e *Executable) execute(inputs []compute.Buffer, donate []bool,
	defaultDevice compute.DeviceNum) ([]compute.Buffer, error) {
	b, p := e.backend, e.state.program
	if err := b.resources.Check(); err != nil {
		return nil, err
	}
	if err := b.checkDevice(defaultDevice); err != nil {
		return nil, err
	}
	inputs, donate = e.withConstants(inputs, donate)
	if want := len(p.Parameters) * p.Replicas * p.Partitions; len(inputs) != want {
		given, devices := numInputs(p), p.Replicas*p.Partitions
		return nil, fmt.Errorf("%d inputs, want %d (%d parameters on %d devices)", len(inputs), given*devices, given, devices)
	}
	if len(donate) != 0 && len(donate) != len(inputs) {
		return nil, fmt.Errorf("%d donate flags for %d inputs", len(donate), len(inputs))
	}
	if len(donate) == 0 {
		donate = make([]bool, len(inputs))
	}
	perDevice := len(p.Parameters)
	for i, input := range inputs {
		switch buf, ok := input.(*Buffer); {
		case !ok || buf == nil || buf.state == nil:
			return nil, fmt.Errorf("input %d is a %T, not a buffer of this backend", i, input)
		case buf.state.backend != b:
			return nil, fmt.Errorf("input %d is a buffer of another backend", i)
		case !buf.state.shape.Equal(p.Shards[i%perDevice]):
			device := ""
			if len(inputs) > perDevice {
				device = fmt.Sprintf(" of device %d", i/perDevice)
			}
			return nil, fmt.Errorf("input %d, parameter %q%s, is %s, want %s", i, p.ParameterNames[i%perDevice], device,
				buf.state.shape, p.Shards[i%perDevice])
		}
	}
	if e.state.isDistributed() || defaultDevice != 0 {
		return e.executeNamed(inputs, donate, defaultDevice)
	}
	if b.ahead != nil {
		return e.executeAhead(inputs, donate)
	}
	return e.executeGlobal(inputs, donate)
}

func (e *Executable) executeGlobal(inputs []compute.Buffer, donate []bool) ([]compute.Buffer, error) {
	b, p := e.backend, e.state.program
	v, err := e.state.variantFor(donate)
	if err != nil {
		return nil, err
	}
	if err := e.claim(inputs, donate); err != nil {
		return nil, err
	}
	defer releaseInputs(inputs, donate, true)
	defer releaseInputs(inputs, donate, false)
	if err := e.compareVariables(inputs); err != nil {
		return nil, err
	}
	args, results := engine.NewBufferTable(len(v.partitions), len(inputs)), engine.NewBufferTable(len(v.partitions),
		len(p.Outputs))
	placements := make([]*placement, len(inputs))
	for i, input := range inputs {
		l, err := input.(*Buffer).state.reshard(v.args[i])
		if err != nil {
			return nil, e.inputError(i, err)
		}
		placements[i] = l
		for row, d := range v.partitions {
			args[row][i] = l.Buffers[d]
		}
	}
	mask := make([]bool, len(inputs))
	for r, i := range v.donors {
		if i < 0 {
			continue
		}
		mask[i] = true
		for row := range v.partitions {
			results[row][r] = args[row][i] // the result reuses the buffer
		}
	}
	if err := b.launch(v, args, results, mask); err != nil {
		return nil, err
	}
	for i, input := range inputs {
		if donate[i] {
			input.(*Buffer).state.invalidate(placements[i], mask[i])
		}
	}
	out := make([]compute.Buffer, len(p.Outputs))
	var errs []error
	for r := range out {
		var l *placement
		if i := v.donors[r]; i >= 0 {
			l = placements[i] // the result reuses its buffers
		} else {
			l = &placement{layout: v.results[r], Buffers: b.runtime.TableColumn(results, v.partitions, r)}
		}
		buf, err := b.newBuffer(&bufferState{backend: b, shape: p.Outputs[r], placements: []*placement{l}})
		out[r], errs = buf, append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// invalidate makes a donated buffer unusable and frees its memory. If aliased is true, it does not
// free the memory of placement p, because a result of the execution reuses it.
func (s *bufferState) invalidate(p *placement, aliased bool) {
	if aliased {
		s.mu.Lock()
		s.placements = slices.DeleteFunc(s.placements, func(x *placement) bool { return x == p })
		s.mu.Unlock()
	}
	_ = s.freeWith(ErrDonated)
	_ = s.backend.resources.Free(s)
}
