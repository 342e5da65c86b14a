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

// Executable is a compiled program that is not loaded onto devices. It tells what the program is
// called, what it costs, what it takes and what it gives. It is safe for concurrent use. An
// Executable from [Topology.Compile] is the caller's to Close; one from [LoadedExecutable.Executable]
// belongs to the LoadedExecutable.
type Executable struct {
	*executableHandle
	// record answers in the plugin's place; then there is no handle.
	record *ExecutableRecord
	owned  bool
}

// newExecutable takes x over. unload ends the loaded program that it belongs to, right after it; it is
// nil ahead of time.
func newExecutable(api *capi.API, path string, unload func() error, x capi.Executable) *Executable {
	h := &executableHandle{handle: handle{kind: live.Executable, path: path}, api: api, x: x}
	h.end = func() error {
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

// Close gives the executable back once calls under way have returned. A second Close returns the
// first result. The Executable of a LoadedExecutable stays open, and Close returns an error that
// matches [ErrBorrowed].
func (e *Executable) Close() error {
	if e == nil || e.executableHandle == nil {
		return nil // a record, or a zero value
	}
	if !e.owned {
		return &errkind.Fault{Op: "pjrt: close executable", Err: ErrBorrowed, Hint: "close the LoadedExecutable"}
	}
	return e.shut("close executable")
}

// answer returns a record with the answer to a question. What it refers to may be the executable's own.
func (e *Executable) answer(q question) (r ExecutableRecord, err error) {
	if e.record == nil {
		err = e.call(q.name, func() error { return q.ask(e.executableHandle, &r) })
		return r, err
	}
	if err := e.record.Missing[q.name]; err != nil {
		return r, err
	}
	return *e.record, nil
}

// Name returns the name of the program's module.
func (e *Executable) Name() (string, error) {
	r, err := e.answer(askName)
	return r.Name, err
}

// Fingerprint returns bytes, not text, that change whenever the compiled program does.
func (e *Executable) Fingerprint() (string, error) {
	r, err := e.answer(askFingerprint)
	return r.Fingerprint, err
}

// Counts returns the number of replicas, of partitions of each replica, and of results per device.
func (e *Executable) Counts() (replicas, partitions, outputs int, err error) {
	r, err := e.answer(askCounts)
	return r.Replicas, r.Partitions, r.Outputs, err
}

// SizeOfGeneratedCode returns the size of the machine code in bytes; -1 if the plugin does not
// know.
func (e *Executable) SizeOfGeneratedCode() (int64, error) {
	r, err := e.answer(askCode)
	return r.GeneratedCode, err
}

// OutputDTypes returns the element types of the results.
func (e *Executable) OutputDTypes() ([]DType, error) {
	r, err := e.answer(askTypes)
	return slices.Clone(r.OutputDTypes), err
}

// OutputDims returns the dimensions of the results, as one device has them.
func (e *Executable) OutputDims() ([][]int, error) {
	r, err := e.answer(askDims)
	return cloneDims(r.OutputDims), err
}

// outputShapes are the results' shapes.
func (e *Executable) outputShapes() (out []*shape, err error) {
	err = e.call("output shapes", func() error {
		types, err := e.api.ExecutableOutputTypes(e.x)
		if err != nil {
			return err
		}
		dims, err := e.api.ExecutableOutputDims(e.x)
		if err != nil {
			return err
		}
		if len(types) != len(dims) {
			return fmt.Errorf("the plugin names %d result types and %d shapes", len(types), len(dims))
		}
		for i := range types {
			out = append(out, shapeOf64(DType(types[i]), dims[i]))
		}
		return nil
	})
	return out, err
}

// OutputMemoryKinds returns the kind of memory that each result lives in.
func (e *Executable) OutputMemoryKinds() ([]string, error) {
	r, err := e.answer(askKinds)
	return slices.Clone(r.OutputKinds), err
}

// ParameterMemoryKinds returns the kind of memory that each argument has to live in. It needs PJRT
// 0.102; an older plugin gives an error that matches errors.ErrUnsupported.
func (e *Executable) ParameterMemoryKinds() ([]string, error) {
	r, err := e.answer(askParameterKinds)
	return slices.Clone(r.ParameterKinds), err
}

// CostAnalysis returns the compiler's estimate for one run on one device, such as "flops" and
// "bytes accessed" (float32). The map is the caller's.
func (e *Executable) CostAnalysis() (map[string]any, error) {
	r, err := e.answer(askCost)
	return maps.Clone(r.Cost), err
}

// MemoryStats returns the compiler's account of the program's memory. A run needs Arguments +
// Outputs + Temp - Alias.
func (e *Executable) MemoryStats() (CompiledMemoryStats, error) {
	r, err := e.answer(askMemory)
	return r.Memory, err
}

// OptimizedProgram returns the program after optimization and partitioning, as one device runs it,
// in the format "hlo_with_config" or "hlo".
func (e *Executable) OptimizedProgram() (Program, error) {
	r, err := e.answer(askOptimized)
	if e.record != nil {
		r.Optimized.Code = bytes.Clone(r.Optimized.Code)
	}
	return r.Optimized, err
}

// Serialize writes the executable out for [Client.Load] of the same plugin build on the same kind
// of device: the plugin's bytes after a header with their checksum. An executable that
// [Client.Load] made gives an error that matches [ErrDeserialized], unless [LoadOptions].Keep kept
// the bytes: the CPU plugin, for one, would write it without its machine code, and what is loaded
// from that fails when it runs.
func (e *Executable) Serialize() ([]byte, error) {
	if e.record == nil && e.executableHandle != nil && e.deserialized {
		if e.serialized != nil {
			return seal(e.serialized, e.params), nil
		}
		return nil, &errkind.Fault{Op: "pjrt: serialize", Err: ErrDeserialized, Hint: "keep those bytes, or have Load keep them with LoadOptions.Keep"}
	}
	r, err := e.answer(askSerialize)
	if e.record != nil {
		r.Serialized = bytes.Clone(r.Serialized)
	}
	return r.Serialized, err
}
