package backend

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/holdings"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Executable is a computation that runs. It is safe for concurrent use. The program is compiled for
// the devices it was assigned to, or, without an assignment, for each device at its first execution
// there.
type Executable struct {
	backend *Backend
	state   *compiled
}

var _ compute.Executable = (*Executable)(nil)

// compiled is the part of an Executable that its cleanup may hold on to.
type compiled struct {
	backend *Backend
	program *lowering.Program
	devices int // per execution

	mu     sync.Mutex
	loaded map[variant]*pjrt.LoadedExecutable // nil once closed
	first  *pjrt.LoadedExecutable
}

// variant is what a program is compiled anew for.
type variant struct {
	device  compute.DeviceNum // of programs for one device without an assignment
	donated string            // with Options.AliasDonated, one byte per parameter
}

// donor marks a parameter whose memory a result takes.
const donor = "jax.buffer_donor"

// compile is lowering's Options.Compile.
func (b *Backend) compile(p *lowering.Program) (compute.Executable, error) {
	exe, err := b.Load(p)
	if err != nil {
		return nil, err
	}
	return exe, nil
}

// Load makes an executable of a program that a backend of package lowering wrote for the same
// compiler. It keeps the program, and changes attributes of its parameters.
func (b *Backend) Load(p *lowering.Program) (*Executable, error) {
	for i, s := range slices.Concat(p.Parameters, p.Outputs) {
		if _, err := hostdata.Type(s.DType); err != nil {
			return nil, failed("compile", fmt.Sprintf("program %q, shape %d, %s", p.Name, i, s), err)
		}
	}
	state := &compiled{
		backend: b,
		program: p,
		devices: p.Replicas * p.Partitions,
		loaded:  map[variant]*pjrt.LoadedExecutable{},
	}
	if state.devices > len(b.devices) {
		return nil, fault(fmt.Sprintf("program %q", p.Name), fmt.Sprintf("it is for %d devices, there are %d", state.devices, len(b.devices)), "make the backend with more devices")
	}
	if err := b.holds.Track(state); err != nil {
		return nil, err
	}
	if !b.opts.AliasDonated {
		first := variant{}
		if len(p.Devices) == 1 {
			first.device = p.Devices[0]
		}
		if _, err := state.load(first); err != nil {
			return nil, errors.Join(err, b.holds.Free(state))
		}
	}
	exe := &Executable{backend: b, state: state}
	runtime.AddCleanup(exe, func(t tracked) { _ = t.backend.holds.Free(t.resource) }, tracked{b, state})
	return exe, nil
}

// Close frees all variants.
func (c *compiled) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, exe := range c.loaded {
		if err := exe.Close(); err != nil {
			errs = append(errs, err)
		}
	}
	holdings.Sort(errs)
	c.loaded, c.first = nil, nil
	return errors.Join(errs...)
}

// load returns a variant, compiling it on first use.
func (c *compiled) load(v variant) (*pjrt.LoadedExecutable, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded == nil {
		return nil, ErrFinalized
	}
	if exe, ok := c.loaded[v]; ok {
		return exe, nil
	}
	p := c.program
	parameters := p.Main().Parameters
	for i := range parameters {
		of := &parameters[i]
		// The donation comes first, and a parameter has it once.
		of.Attributes = slices.DeleteFunc(slices.Clone(of.Attributes), func(a ir.Attribute) bool { return a.Key == donor })
		if i < len(v.donated) && v.donated[i] != 0 {
			of.Attributes = slices.Insert(of.Attributes, 0, ir.Attribute{Key: donor, Value: ir.Flag(true)})
		}
	}
	text, err := p.Text()
	if err != nil {
		return nil, err
	}
	exe, err := c.backend.client.Compile(context.Background(), pjrt.Program{Code: text, Trusted: true}, pjrt.CompileOptions{
		Replicas:         p.Replicas,
		Partitions:       p.Partitions,
		DeviceAssignment: c.assignment(v),
		SPMD:             p.Partitions > 1,
		Shardy:           p.Partitions > 1,
	})
	if err != nil {
		return nil, failed("compile", fmt.Sprintf("program %q", p.Name), err)
	}
	c.loaded[v] = exe
	if c.first == nil {
		c.first = exe
	}
	return exe, nil
}

// assignment lists the global ids of the devices of each replica.
func (c *compiled) assignment(v variant) [][]int {
	p := c.program
	out := make([][]int, p.Replicas)
	for r := range out {
		for i := range p.Partitions {
			num := v.device
			if c.devices > 1 {
				num = compute.DeviceNum(r*p.Partitions + i)
				if p.Devices != nil {
					num = p.Devices[num]
				}
			}
			out[r] = append(out[r], c.backend.devices[num].ID())
		}
	}
	return out
}

// Finalize frees the compiled program.
func (e *Executable) Finalize() { _ = e.backend.holds.Free(e.state) }

// Inputs returns the names and shapes of the parameters, in order.
func (e *Executable) Inputs() (names []string, inputShapes []shapes.Shape) {
	return slices.Clone(e.state.program.ParameterNames), slices.Clone(e.state.program.Parameters)
}

// Outputs returns the shapes of the results, in order.
func (e *Executable) Outputs() []shapes.Shape { return slices.Clone(e.state.program.Outputs) }

// Program returns the program that runs. It must not be changed.
func (e *Executable) Program() *lowering.Program { return e.state.program }

// Execute runs the program and returns its results, which may still be on their way. Inputs are
// device by device, all parameters of a device together; so are the results. Donated inputs belong
// to the execution, whether it succeeds or not in the plugin; an error in the arguments leaves them
// as they were. On a program without a device assignment, defaultDevice says where to run.
func (e *Executable) Execute(inputs []compute.Buffer, donate []bool, defaultDevice compute.DeviceNum) ([]compute.Buffer, error) {
	out, err := e.execute(inputs, donate, defaultDevice)
	runtime.KeepAlive(e)
	runtime.KeepAlive(inputs)
	if err != nil {
		return nil, failed("execute", fmt.Sprintf("program %q", e.state.program.Name), err)
	}
	return out, nil
}

func (e *Executable) execute(inputs []compute.Buffer, donate []bool, defaultDevice compute.DeviceNum) ([]compute.Buffer, error) {
	b, p := e.backend, e.state.program
	if err := b.holds.Check(); err != nil {
		return nil, err
	}
	perDevice := len(p.Parameters)
	if want := perDevice * e.state.devices; len(inputs) != want {
		return nil, fmt.Errorf("%d inputs, want %d (%d parameters on %d devices)", len(inputs), want, perDevice, e.state.devices)
	}
	if len(donate) != 0 && len(donate) != len(inputs) {
		return nil, fmt.Errorf("%d donate flags for %d inputs", len(donate), len(inputs))
	}
	mask, err := donation(donate, perDevice)
	if err != nil {
		return nil, err
	}
	v := variant{}
	if e.state.devices == 1 {
		if v.device = defaultDevice; len(p.Devices) == 1 {
			v.device = p.Devices[0]
		}
		if _, err := b.device(v.device); err != nil {
			return nil, err
		}
	}
	args := make([][]*pjrt.Buffer, e.state.devices)
	for i, input := range inputs {
		buf, ok := input.(*Buffer)
		switch {
		case !ok || buf == nil:
			return nil, fmt.Errorf("input %d is a %T, not a buffer of this backend", i, input)
		case buf.backend != b:
			return nil, fmt.Errorf("input %d is a buffer of another backend", i)
		case !buf.shape.Equal(p.Shards[i%perDevice]):
			of := ""
			if e.state.devices > 1 {
				of = fmt.Sprintf(" of device %d", i/perDevice)
			}
			return nil, fmt.Errorf("input %d, parameter %q%s, is %s, want %s", i, p.ParameterNames[i%perDevice], of, buf.shape, p.Shards[i%perDevice])
		}
		args[i/perDevice] = append(args[i/perDevice], buf.buf)
	}
	if b.opts.AliasDonated {
		v.donated = flags(mask)
	}
	exe, err := e.state.load(v)
	if err != nil {
		return nil, err
	}
	results := make([][]*pjrt.Buffer, e.state.devices)
	for d := range results {
		results[d] = make([]*pjrt.Buffer, len(p.Outputs))
	}
	if err := exe.Execute(context.Background(), args, results, pjrt.ExecuteOptions{Donate: mask}); err != nil {
		return nil, err
	}
	return e.wrap(results, v.device)
}

// wrap makes buffers of the results.
func (e *Executable) wrap(results [][]*pjrt.Buffer, single compute.DeviceNum) ([]compute.Buffer, error) {
	var out []compute.Buffer
	var errs []error
	for d, row := range results {
		num := single
		if e.state.devices > 1 {
			num = compute.DeviceNum(d)
			if e.state.program.Devices != nil {
				num = e.state.program.Devices[d]
			}
		}
		for i, buf := range row {
			shape := e.state.program.Outputs[i].Clone()
			shape.Dimensions = slices.Clone(buf.Dims()) // one device's part of a sharded result
			wrapped, err := e.backend.newBuffer(buf, shape, num)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			out = append(out, wrapped)
		}
	}
	return out, errors.Join(errs...)
}

// donation reduces the flags of all inputs to one per parameter, which is what a program can be
// told.
func donation(donate []bool, perDevice int) ([]bool, error) {
	if !slices.Contains(donate, true) {
		return nil, nil
	}
	mask := donate[:perDevice]
	for i, d := range donate {
		if d != mask[i%perDevice] {
			return nil, fmt.Errorf("parameter %d is donated on some devices only", i%perDevice)
		}
	}
	return mask, nil
}

// flags renders a donation mask as a map key.
func flags(mask []bool) string {
	key := make([]byte, len(mask))
	for i, d := range mask {
		if d {
			key[i] = 1
		}
	}
	return string(key)
}

// MemoryStats returns what the compiler says of the memory of the program, as compiled first; an
// error if it was not compiled yet.
func (e *Executable) MemoryStats() (pjrt.CompiledMemoryStats, error) {
	c := e.state
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		return pjrt.CompiledMemoryStats{}, &errkind.Fault{Op: "backend: memory of", Subject: fmt.Sprintf("program %q", c.program.Name), Reason: "it is not compiled", Hint: "execute it once", Class: errkind.FailedPreconditionError}
	}
	return c.first.Executable().MemoryStats()
}
