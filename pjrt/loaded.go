package pjrt

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// LoadedExecutable is a program on the devices of a client, ready to run. It is safe for concurrent
// use, Execute included. It is the caller's to Close.
type LoadedExecutable struct {
	*loadedHandle
	exec    *Executable
	devices []*Device
	outputs []*shape
	// params is nil until the parameters are known.
	params atomic.Pointer[[]*shape]
	mu     sync.Mutex
	result error
}

// Compile compiles a program for the client's devices and loads it. The program must be trusted; see
// [Program]. Malformed options give a [*CompileError] before the plugin is called; a compiler's own
// refusal is an [*Error] with the whole message in Log. It takes from milliseconds to minutes. If
// ctx ends first, Compile returns its cause; the compiler cannot be stopped, and what it makes is
// dropped.
func (c *Client) Compile(ctx context.Context, p Program, o CompileOptions) (*LoadedExecutable, error) {
	if c.core == nil {
		return nil, errNotMade("compile", "client", "NewClient")
	}
	p, err := p.check()
	if err != nil {
		return nil, err
	}
	options, err := o.On(c.platformName).encode(len(c.devices), func(id int) bool { return c.byID[id] != nil })
	if err != nil {
		return nil, err
	}
	return c.load(ctx, "compile", p.Code, nil, func(code []byte) (capi.Loaded, error) {
		return c.api.ClientCompile(c.c, code, p.Format, options)
	})
}

// LoadOptions configure Load.
type LoadOptions struct {
	// Compile, if it is not nil, replaces the options that the program was compiled with, such as
	// its device assignment. Plugins may refuse that.
	Compile *CompileOptions
	// Keep keeps the bytes in memory, so that [Executable.Serialize] can give them again.
	Keep bool
}

// Load puts an executable on the client's devices that [Executable.Serialize] wrote, on the same
// plugin build and kind of device. Bytes that were cut short or changed give a [*CompileError]. The
// bytes run as machine code, and a checksum is no signature: load only what you wrote yourself.
func (c *Client) Load(ctx context.Context, serialized []byte, o LoadOptions) (*LoadedExecutable, error) {
	payload, params, err := unseal(serialized)
	if err != nil {
		return nil, err
	}
	var options []byte
	if o.Compile != nil {
		if options, err = o.Compile.encode(len(c.devices), func(id int) bool { return c.byID[id] != nil }); err != nil {
			return nil, err
		}
	}
	l, err := c.load(ctx, "load executable", payload, params, func(b []byte) (capi.Loaded, error) {
		return c.api.ClientDeserialize(c.c, b, options)
	})
	if err != nil {
		return nil, err
	}
	l.exec.deserialized = true
	if o.Keep {
		l.exec.serialized = bytes.Clone(payload) // the caller's to change
	}
	return l, nil
}

// load runs a call that makes a loaded executable from bytes. params are the types of the program's
// parameters, nil if the plugin has to tell them.
func (c *Client) load(ctx context.Context, op string, b []byte, params []*shape, f func([]byte) (capi.Loaded, error)) (*LoadedExecutable, error) {
	if err := c.retain(childCall); err != nil {
		return nil, fail(op, "", err)
	}
	defer c.release(childCall)
	c.add(childWork, 1)
	if ctx.Done() != nil {
		b = bytes.Clone(b) // the call may outlive the caller
	}
	return await(ctx, op, func() (*LoadedExecutable, error) {
		x, err := f(b)
		if err != nil {
			return nil, c.wrap(op, err)
		}
		return c.newLoaded(x, params)
	}, func(x *LoadedExecutable) { x.Close() }, func() {
		c.release(childWork)
	})
}

// newLoaded takes x over. The caller holds the client open.
func (c *Client) newLoaded(x capi.Loaded, params []*shape) (*LoadedExecutable, error) {
	inner, err := c.api.LoadedExecutable(x)
	if err != nil {
		_ = c.api.LoadedDestroy(x)
		return nil, c.wrap("read executable", err)
	}
	c.add(childExecutable, 1)
	live.Add(live.Executable, unsafe.Pointer(x))
	h := &loadedHandle{core: c.core, x: x}
	l := &LoadedExecutable{loadedHandle: h, exec: newExecutable(c.api, c.path, h.unload, inner)}
	h.exec = l.exec.executableHandle
	if err := l.read(c, params); err != nil {
		l.Close()
		return nil, err
	}
	runtime.AddCleanup(l, func(h *loadedHandle) {
		x := unsafe.Pointer(h.x)
		if first, _ := h.end(); first {
			live.Reclaimed(live.Executable, x)
		}
	}, l.loadedHandle)
	return l, nil
}

// read learns the devices and shapes. A plugin that does not tell the parameters leaves them to the
// first call. Those of serialized bytes were read and checked when the program was compiled.
func (l *LoadedExecutable) read(c *Client, params []*shape) error {
	handles, err := c.api.LoadedDevices(l.x)
	if err != nil {
		return c.wrap("executable devices", err)
	}
	for _, h := range handles {
		d := c.byHandle[h]
		if d == nil {
			return &Error{Op: "executable devices", Code: Internal, Plugin: c.path, Msg: "the plugin names a device that the client does not have"}
		}
		l.devices = append(l.devices, d)
	}
	if l.outputs, err = l.exec.outputShapes(); err != nil {
		return err
	}
	for j, out := range l.outputs {
		if len(out.dims) > maxRank {
			return compileError("Program.Code", "result %d of main has rank %d, and %d is the limit of what can be copied to the host", j, len(out.dims), maxRank)
		}
	}
	if params != nil {
		l.know(params)
		return nil
	}
	if p, err := l.exec.OptimizedProgram(); err == nil {
		params, rowMajor, err := parameterShapes(p)
		switch {
		case err == nil && !rowMajor && c.platformName == "cpu":
			// It would hand results out in the device's order, whatever is asked.
			return &CompileError{Field: "Program.Code", Reason: "a parameter or result of main has a layout that is not row-major, which the CPU plugin cannot transfer", Hint: "leave mhlo.layout_mode out"}
		case err == nil:
			l.know(params)
		case errors.Is(err, errDynamic):
			// The plugin ends the process when such a program is executed.
			return &CompileError{Field: "Program.Code", Reason: "a parameter or result of main has a dynamic shape, such as tensor<?xf32, #stablehlo.bounds<8>>",
				Hint: "use static shapes: pad the values, and pass their number as another value"}
		case errors.Is(err, errNoArray):
			return &CompileError{Field: "Program.Code", Reason: "a parameter of main is no array, such as a tuple", Hint: "pass its elements one by one"}
		}
	}
	return nil
}

// Executable returns what describes the program. It belongs to the LoadedExecutable.
func (l *LoadedExecutable) Executable() *Executable { return l.exec }

// AddressableDevices returns this process's devices of the program in launch order: element d is
// the device of args[d] and results[d] of Execute.
func (l *LoadedExecutable) AddressableDevices() []*Device { return slices.Clone(l.devices) }

// DeviceAssignment returns at [replica][partition] the global device id, of all processes. It needs
// PJRT 0.79.
func (l *LoadedExecutable) DeviceAssignment() ([][]int, error) {
	const op = "device assignment"
	if l.loadedHandle == nil {
		return nil, errNotMade(op, "executable", "Compile")
	}
	if !l.enter() {
		return nil, fail(op, "executable", ErrClosed)
	}
	b, err := l.core.api.LoadedAssignment(l.x)
	l.exit()
	if err != nil {
		return nil, l.core.wrap(op, err)
	}
	assignment, err := readAssignment(b)
	if err != nil {
		return nil, fail(op, "", err)
	}
	return assignment, nil
}

// NumOutputs returns the number of results per device.
func (l *LoadedExecutable) NumOutputs() int { return len(l.outputs) }

// TensorType is the type of a tensor.
type TensorType struct {
	// DType is the element type.
	DType DType
	// Dims are the dimensions, major first.
	Dims []int
}

// Parameters returns the types of the arguments as one device takes them; nil and false if neither
// the plugin nor a call told.
func (l *LoadedExecutable) Parameters() ([]TensorType, bool) {
	p := l.params.Load()
	if p == nil {
		return nil, false
	}
	return tensorTypes(*p), true
}

// Outputs returns the types of the results as one device gives them.
func (l *LoadedExecutable) Outputs() []TensorType { return tensorTypes(l.outputs) }

func tensorTypes(shapes []*shape) []TensorType {
	out := make([]TensorType, len(shapes))
	for i, s := range shapes {
		out[i] = TensorType{s.dtype, slices.Clone(s.view)}
	}
	return out
}

// know notes the parameters that the plugin told.
func (l *LoadedExecutable) know(params []*shape) {
	l.exec.params = l.share(params)
	l.params.Store(l.exec.params)
}

// share lets a parameter share the type of the result of its number, if that is the same, so that a
// buffer that goes in and out is compared by its address.
func (l *LoadedExecutable) share(params []*shape) *[]*shape {
	for i, p := range params {
		if i < len(l.outputs) && p.equal(l.outputs[i]) {
			params[i] = l.outputs[i]
		}
	}
	return &params
}

// Close gives the program back once calls under way have returned; launches already enqueued run to
// their end. A second Close returns the first result.
func (l *LoadedExecutable) Close() error {
	if l == nil || l.loadedHandle == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if first, err := l.end(); first {
		l.result = l.core.wrap("close executable", err)
	}
	return l.result
}
