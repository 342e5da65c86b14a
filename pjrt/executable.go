package pjrt

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// Executable is a compiled program that is not loaded onto devices. It provides the properties of
// the program, such as its cost and the shapes of its results. It is safe for concurrent use. The
// caller must close an Executable from [Topology.Compile]. An Executable from
// [LoadedExecutable.Executable] belongs to the LoadedExecutable.
type Executable struct {
	*executableHandle
	// record, if not nil, contains the properties. Then the handle is nil, and no plugin is queried.
	record *ExecutableRecord
	owned  bool
}

// executableHandle owns the C executable of an Executable. The handle does not refer to the
// Executable, so that the garbage collector can detect that the Executable is unreachable.
type executableHandle struct {
	handle
	api        *capi.API
	executable capi.Executable
	// deserialized is true if the executable was loaded from serialized bytes. serialized has those
	// bytes if LoadOptions.KeepSerialized was set.
	deserialized bool
	serialized   []byte
	// params are the shapes of the program's parameters, which Serialize writes; nil if unknown.
	params *[]*shape
}

// withHandle calls f while the executable is acquired, so that it is not freed during the call.
func (h *executableHandle) withHandle(op string, f func() error) error {
	if h == nil {
		return zeroValueError(op, "executable", "Compile")
	}
	return h.handle.withHandle(op, f)
}

// newExecutable returns an Executable that owns x. If x belongs to a loaded program, unload
// destroys that program after x is destroyed; otherwise unload is nil.
func newExecutable(api *capi.API, path string, unload func() error, x capi.Executable) *Executable {
	h := &executableHandle{handle: handle{kind: live.Executable, path: path}, api: api, executable: x}
	h.free = func() error {
		err := api.ExecutableDestroy(x)
		if unload != nil {
			return unload()
		}
		return err
	}
	e := &Executable{executableHandle: h, owned: unload == nil}
	live.Add(live.Executable, unsafe.Pointer(&h.handle))
	if e.owned {
		runtime.AddCleanup(e, (*handle).reclaim, &h.handle)
	}
	return e
}

// Close frees the executable when no call uses it any more. A second Close returns the result of
// the first. For the Executable of a LoadedExecutable, Close has no effect and returns an error
// that matches [ErrBorrowed].
func (e *Executable) Close() error {
	if e == nil || e.executableHandle == nil {
		return nil // a record or a zero value
	}
	if !e.owned {
		return &errkind.Fault{Op: "pjrt: close executable", Err: ErrBorrowed, Hint: "close the LoadedExecutable"}
	}
	return e.closeOnce("close executable")
}

// readProperty reads one property of the executable into the corresponding field of a new record.
// The record may share memory with e.
func (e *Executable) readProperty(p property) (r ExecutableRecord, err error) {
	if e.record == nil {
		err = e.withHandle(p.name, func() error { return p.read(e.executableHandle, &r) })
		return r, err
	}
	if err := e.record.Missing[p.name]; err != nil {
		return r, err
	}
	return *e.record, nil
}

// Name returns the name of the program's module.
func (e *Executable) Name() (string, error) {
	r, err := e.readProperty(propName)
	return r.Name, err
}

// Fingerprint returns a binary string that identifies the compiled program. Different programs have
// different fingerprints.
func (e *Executable) Fingerprint() (string, error) {
	r, err := e.readProperty(propFingerprint)
	return r.Fingerprint, err
}

// Counts returns the number of replicas, of partitions per replica, and of results per device.
func (e *Executable) Counts() (replicas, partitions, outputs int, err error) {
	r, err := e.readProperty(propCounts)
	return r.Replicas, r.Partitions, r.Outputs, err
}

// SizeOfGeneratedCode returns the size of the machine code in bytes, or -1 if it is unknown.
func (e *Executable) SizeOfGeneratedCode() (int64, error) {
	r, err := e.readProperty(propGeneratedCode)
	return r.GeneratedCode, err
}

// OutputDTypes returns the element types of the results.
func (e *Executable) OutputDTypes() ([]DType, error) {
	r, err := e.readProperty(propOutputDTypes)
	return slices.Clone(r.OutputDTypes), err
}

// OutputDims returns the dimensions of the results on one device.
func (e *Executable) OutputDims() ([][]int, error) {
	r, err := e.readProperty(propOutputDims)
	return cloneDims(r.OutputDims), err
}

// outputShapes returns the shapes of the results on one device.
func (e *Executable) outputShapes() (out []*shape, err error) {
	err = e.withHandle("output shapes", func() error {
		types, err := e.api.ExecutableOutputTypes(e.executable)
		if err != nil {
			return err
		}
		dims, err := e.api.ExecutableOutputDims(e.executable)
		if err != nil {
			return err
		}
		if len(types) != len(dims) {
			return fmt.Errorf("the plugin returned %d result types but %d result shapes", len(types), len(dims))
		}
		for i := range types {
			out = append(out, newShapeInt64(DType(types[i]), dims[i]))
		}
		return nil
	})
	return out, err
}

// OutputMemoryKinds returns the memory kind of each result.
func (e *Executable) OutputMemoryKinds() ([]string, error) {
	r, err := e.readProperty(propOutputMemoryKinds)
	return slices.Clone(r.OutputKinds), err
}

// ParameterMemoryKinds returns the memory kind that the program expects for each argument. It
// requires PJRT 0.102; with older plugins, the error matches errors.ErrUnsupported.
func (e *Executable) ParameterMemoryKinds() ([]string, error) {
	r, err := e.readProperty(propParameterKinds)
	return slices.Clone(r.ParameterKinds), err
}

// CostAnalysis returns the compiler's cost estimates for one run on one device, such as "flops" and
// "bytes accessed" (float32), in a new map.
func (e *Executable) CostAnalysis() (map[string]any, error) {
	r, err := e.readProperty(propCost)
	return maps.Clone(r.Cost), err
}

// MemoryStats returns the compiler's estimate of the memory that the program uses. A run uses
// Arguments + Outputs + Temp - Alias bytes.
func (e *Executable) MemoryStats() (CompiledMemoryStats, error) {
	r, err := e.readProperty(propMemory)
	return r.Memory, err
}

// OptimizedProgram returns the program of one device after optimization and partitioning. Its
// format is "hlo_with_config" or "hlo".
func (e *Executable) OptimizedProgram() (Program, error) {
	r, err := e.readProperty(propOptimized)
	if e.record != nil {
		r.Optimized.Code = bytes.Clone(r.Optimized.Code)
	}
	return r.Optimized, err
}

// Serialize returns the executable in a binary form that [Client.Load] can load. Loading requires
// the same build of the plugin and the same kind of device. The result contains a checksum.
//
// If the executable was loaded by [Client.Load] without [LoadOptions].KeepSerialized, Serialize
// returns an error that matches [ErrDeserialized], because the CPU plugin would serialize the
// executable without its machine code.
func (e *Executable) Serialize() ([]byte, error) {
	if e.record == nil && e.executableHandle != nil && e.deserialized {
		if e.serialized != nil {
			return encodeSerialized(e.serialized, e.params), nil
		}
		return nil, &errkind.Fault{Op: "pjrt: serialize", Err: ErrDeserialized,
			Hint: "use the original bytes, or set LoadOptions.KeepSerialized when you load them"}
	}
	r, err := e.readProperty(propSerialized)
	if e.record != nil {
		r.Serialized = bytes.Clone(r.Serialized)
	}
	return r.Serialized, err
}
