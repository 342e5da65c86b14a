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

// LoadedExecutable is a program that is loaded onto devices of a client. All methods, including
// Execute, are safe for concurrent use. The caller must close the LoadedExecutable.
type LoadedExecutable struct {
	*loadedHandle
	exec    *Executable
	devices []*Device
	outputs []*shape
	params  atomic.Pointer[[]*shape] // nil while unknown

	mu       sync.Mutex
	closeErr error // guarded by mu
}

// Compile compiles a program for devices of the client and loads it. The program must be trusted;
// see [Program]. An invalid option is a [*CompileError]. An error of the compiler is an [*Error],
// whose Log is the complete message. Compilation takes from milliseconds to minutes. If ctx ends
// first, Compile returns the cause of ctx; the compiler continues, and its result is discarded.
func (c *Client) Compile(ctx context.Context, program Program, opts CompileOptions) (*LoadedExecutable, error) {
	if c.clientHandle == nil {
		return nil, zeroValueError("compile", "client", "NewClient")
	}
	program, err := program.withDefaultFormat()
	if err != nil {
		return nil, err
	}
	options, err := opts.WithPlatformDefaults(c.platformName).encode(len(c.devices),
		func(id int) bool { return c.devicesByID[id] != nil })
	if err != nil {
		return nil, err
	}
	return c.loadExecutable(ctx, "compile", program.Code, nil, func(code []byte) (capi.Loaded, error) {
		return c.api.ClientCompile(c.client, code, program.Format, options)
	})
}

// LoadOptions configures [Client.Load].
type LoadOptions struct {
	// Compile, if not nil, replaces the compile options of the program, such as its device
	// assignment. Plugins may reject this.
	Compile *CompileOptions
	// KeepSerialized stores the serialized bytes in memory, so that [Executable.Serialize] can return
	// them.
	KeepSerialized bool
}

// Load loads the result of [Executable.Serialize] onto devices of the client. The client must have
// the same plugin build and the same kind of device. Truncated or modified bytes are a
// [*CompileError]. The bytes contain machine code, and their checksum is not a signature: load only
// bytes from a trusted source.
func (c *Client) Load(ctx context.Context, serialized []byte, opts LoadOptions) (*LoadedExecutable, error) {
	payload, params, err := decodeSerialized(serialized)
	if err != nil {
		return nil, err
	}
	var options []byte
	if opts.Compile != nil {
		if options, err = opts.Compile.encode(len(c.devices),
			func(id int) bool { return c.devicesByID[id] != nil }); err != nil {
			return nil, err
		}
	}
	l, err := c.loadExecutable(ctx, "load executable", payload, params, func(b []byte) (capi.Loaded, error) {
		return c.api.ClientDeserialize(c.client, b, options)
	})
	if err != nil {
		return nil, err
	}
	l.exec.deserialized = true
	if opts.KeepSerialized {
		l.exec.serialized = bytes.Clone(payload)
	}
	return l, nil
}

// loadExecutable returns the executable that f compiles or deserializes from b. If ctx ends first,
// loadExecutable returns without waiting for f. params are the shapes of the program's parameters,
// or nil if the plugin must be queried.
func (c *Client) loadExecutable(ctx context.Context, op string, b []byte, params []*shape,
	f func([]byte) (capi.Loaded, error)) (*LoadedExecutable, error) {
	if err := c.acquire(dependentCall); err != nil {
		return nil, opError(op, "", err)
	}
	defer c.release(dependentCall)
	c.addDependents(dependentWork, 1)
	if ctx.Done() != nil {
		b = bytes.Clone(b) // f may run longer than the caller
	}
	return callWithContext(ctx, op, func() (*LoadedExecutable, error) {
		x, err := f(b)
		if err != nil {
			return nil, c.wrapError(op, err)
		}
		return c.newLoaded(x, params)
	}, func(x *LoadedExecutable) { x.Close() }, func() {
		c.release(dependentWork)
	})
}

// newLoaded returns a LoadedExecutable that owns x. The caller must have acquired the client.
// params are the shapes of the program's parameters, or nil if they must be queried.
func (c *Client) newLoaded(x capi.Loaded, params []*shape) (*LoadedExecutable, error) {
	inner, err := c.api.LoadedExecutable(x)
	if err != nil {
		_ = c.api.LoadedDestroy(x)
		return nil, c.wrapError("read executable", err)
	}
	c.addDependents(dependentExecutable, 1)
	live.Add(live.Executable, unsafe.Pointer(x))
	h := &loadedHandle{core: c.clientHandle, loaded: x}
	l := &LoadedExecutable{loadedHandle: h, exec: newExecutable(c.api, c.path, h.unload, inner)}
	h.executable = l.exec.executableHandle
	if err := l.readProperties(c, params); err != nil {
		l.Close()
		return nil, err
	}
	runtime.AddCleanup(l, func(h *loadedHandle) {
		x := unsafe.Pointer(h.loaded)
		if first, _ := h.closeOnce(); first {
			live.MarkReclaimed(live.Executable, x)
		}
	}, l.loadedHandle)
	return l, nil
}

// readProperties reads the devices and shapes of the program. params are the shapes of the parameters,
// or nil to query them. If the plugin does not report them, the first Execute call determines them.
func (l *LoadedExecutable) readProperties(c *Client, params []*shape) error {
	handles, err := c.api.LoadedDevices(l.loaded)
	if err != nil {
		return c.wrapError("executable devices", err)
	}
	for _, h := range handles {
		d := c.devicesByHandle[h]
		if d == nil {
			return &Error{Op: "executable devices", Code: Internal, Plugin: c.path,
				Msg: "the plugin returned a device that the client does not have"}
		}
		l.devices = append(l.devices, d)
	}
	if l.outputs, err = l.exec.outputShapes(); err != nil {
		return err
	}
	for j, out := range l.outputs {
		if len(out.dims) > maxRank {
			return compileError("Program.Code",
				"result %d of main has rank %d, but only results of rank %d or less can be copied to the host",
				j, len(out.dims), maxRank)
		}
	}
	if params != nil {
		l.setParams(params)
		return nil
	}
	if p, err := l.exec.OptimizedProgram(); err == nil {
		params, rowMajor, err := parameterShapes(p)
		switch {
		case err == nil && !rowMajor && c.platformName == "cpu":
			// The CPU plugin ignores the layout that a copy to the host requests.
			return &CompileError{Field: "Program.Code",
				Reason: "a parameter or result of main has a layout that is not row-major, which the CPU plugin cannot transfer",
				Hint:   "remove mhlo.layout_mode"}
		case err == nil:
			l.setParams(params)
		case errors.Is(err, errDynamicShape):
			// The plugin aborts the process when such a program is executed.
			return &CompileError{Field: "Program.Code",
				Reason: "a parameter or result of main has a dynamic shape, such as tensor<?xf32, #stablehlo.bounds<8>>",
				Hint:   "use static shapes: pad the values, and pass their number as another value"}
		case errors.Is(err, errNotArray):
			return &CompileError{Field: "Program.Code",
				Reason: "a parameter of main is not an array, but for example a tuple",
				Hint:   "make each element a parameter"}
		}
	}
	return nil
}

// Executable returns the properties of the program. The Executable belongs to l.
func (l *LoadedExecutable) Executable() *Executable { return l.exec }

// AddressableDevices returns the devices of this process that run the program, in launch order:
// element d is the device of args[d] and results[d] in Execute.
func (l *LoadedExecutable) AddressableDevices() []*Device { return slices.Clone(l.devices) }

// DeviceAssignment returns the global ids of the program's devices in all processes, indexed by
// replica and partition. It requires PJRT 0.79.
func (l *LoadedExecutable) DeviceAssignment() ([][]int, error) {
	const op = "device assignment"
	if l.loadedHandle == nil {
		return nil, zeroValueError(op, "executable", "Compile")
	}
	if !l.acquire() {
		return nil, opError(op, "", errExecutableClosed)
	}
	b, err := l.core.api.LoadedAssignment(l.loaded)
	l.release()
	if err != nil {
		return nil, l.core.wrapError(op, err)
	}
	assignment, err := decodeAssignment(b)
	if err != nil {
		return nil, opError(op, "", err)
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

// Parameters returns the types of the parameters on one device. ok is false if the types are
// unknown, because the plugin does not report them and Execute has not been called yet.
func (l *LoadedExecutable) Parameters() (types []TensorType, ok bool) {
	p := l.params.Load()
	if p == nil {
		return nil, false
	}
	return tensorTypes(*p), true
}

// Outputs returns the types of the results on one device.
func (l *LoadedExecutable) Outputs() []TensorType { return tensorTypes(l.outputs) }

func tensorTypes(shapes []*shape) []TensorType {
	out := make([]TensorType, len(shapes))
	for i, s := range shapes {
		out[i] = TensorType{s.dtype, slices.Clone(s.intDims)}
	}
	return out
}

// setParams stores the shapes of the parameters as reported by the plugin.
func (l *LoadedExecutable) setParams(params []*shape) {
	l.exec.params = l.reuseOutputShapes(params)
	l.params.Store(l.exec.params)
}

// reuseOutputShapes lets each parameter share the shape object of the result with the same index if
// both shapes are equal. Execute can then check a buffer that is both argument and result by
// comparing pointers.
func (l *LoadedExecutable) reuseOutputShapes(params []*shape) *[]*shape {
	for i, p := range params {
		if i < len(l.outputs) && p.equal(l.outputs[i]) {
			params[i] = l.outputs[i]
		}
	}
	return &params
}

// Close frees the program when no call uses it any more. Launches that are already enqueued still
// complete. A second Close returns the result of the first.
func (l *LoadedExecutable) Close() error {
	if l == nil || l.loadedHandle == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if first, err := l.closeOnce(); first {
		l.closeErr = l.core.wrapError("close executable", err)
	}
	return l.closeErr
}
