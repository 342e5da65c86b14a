package pjrt

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// Executable is a compiled program that is not loaded onto devices. It tells what the program is
// called, what it costs, what it takes and what it gives. It is safe for concurrent use. An
// Executable from [Plugin.Compile] is the caller's to Close; one from [LoadedExecutable.Executable]
// belongs to the LoadedExecutable.
type Executable struct {
	*executableHandle
	// record answers in the plugin's place; then there is no handle.
	record *ExecutableRecord
	owned  bool
	mu     sync.Mutex
	result error
}

// executableHandle is the inner half, without a way back to the Executable.
type executableHandle struct {
	guard
	api  *capi.API
	path string
	x    capi.Executable
	// unload ends the loaded program that it belongs to, right after it; nil ahead of time.
	unload func() error
	// deserialized says that it came from serialized bytes, which are kept if the caller asked for
	// that.
	deserialized bool
	serialized   []byte
	// params are the types of the parameters, for what is serialized; nil if nobody told them.
	params *[]*shape
}

func newExecutable(api *capi.API, path string, unload func() error, x capi.Executable) *Executable {
	e := &Executable{executableHandle: &executableHandle{api: api, path: path, x: x, unload: unload}, owned: unload == nil}
	live.Add(live.Executable, unsafe.Pointer(x))
	if e.owned {
		runtime.AddCleanup(e, func(h *executableHandle) {
			if first, last := h.close(); first {
				live.Reclaimed(live.Executable, unsafe.Pointer(h.x))
				if last {
					_ = h.destroy()
				}
			}
		}, e.executableHandle)
	}
	return e
}

func (h *executableHandle) destroy() error {
	live.Remove(live.Executable, unsafe.Pointer(h.x))
	err := h.api.ExecutableDestroy(h.x)
	if h.unload != nil {
		return h.unload()
	}
	return err
}

// call runs f on the live C object.
func (h *executableHandle) call(op string, f func() error) error {
	if h == nil {
		return errNotMade(op, "executable", "Compile")
	}
	if !h.enter() {
		return fail(op, "executable", ErrClosed)
	}
	defer func() {
		if h.leave() {
			_ = h.destroy()
		}
	}()
	return wrap(op, h.path, f())
}

// Close gives the executable back once calls under way have returned. A second Close returns the
// first result. The Executable of a LoadedExecutable stays open, and Close returns an error that
// matches [ErrBorrowed].
func (e *Executable) Close() error {
	if e.executableHandle == nil {
		return nil // a record, or a zero value
	}
	if !e.owned {
		return &errkind.Fault{Op: "pjrt: close executable", Err: ErrBorrowed, Hint: "close the LoadedExecutable"}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, last := e.close(); last {
		e.result = wrap("close executable", e.path, e.destroy())
	}
	return e.result
}

// Name returns the name of the program's module.
func (e *Executable) Name() (s string, err error) {
	err = e.ask(askName, func(r *ExecutableRecord) { s = r.Name }, func() error { s, err = e.api.ExecutableName(e.x); return err })
	return s, err
}

// Fingerprint returns bytes, not text, that change whenever the compiled program does.
func (e *Executable) Fingerprint() (s string, err error) {
	err = e.ask(askFingerprint, func(r *ExecutableRecord) { s = r.Fingerprint }, func() error { s, err = e.api.ExecutableFingerprint(e.x); return err })
	return s, err
}

// Counts returns the number of replicas, of partitions of each replica, and of results per device.
func (e *Executable) Counts() (replicas, partitions, outputs int, err error) {
	err = e.ask(askCounts, func(r *ExecutableRecord) { replicas, partitions, outputs = r.Replicas, r.Partitions, r.Outputs }, func() error {
		replicas, partitions, outputs, err = e.api.ExecutableCounts(e.x)
		return err
	})
	return replicas, partitions, outputs, err
}

// NumReplicas returns the number of copies of the program.
func (e *Executable) NumReplicas() (int, error) {
	n, _, _, err := e.Counts()
	return n, err
}

// NumPartitions returns the number of devices of one replica.
func (e *Executable) NumPartitions() (int, error) {
	_, n, _, err := e.Counts()
	return n, err
}

// SizeOfGeneratedCode returns the size of the machine code in bytes; -1 if the plugin does not
// know.
func (e *Executable) SizeOfGeneratedCode() (n int64, err error) {
	err = e.ask(askCode, func(r *ExecutableRecord) { n = r.GeneratedCode }, func() error { n, err = e.api.ExecutableCodeSize(e.x); return err })
	return n, err
}

// OutputDTypes returns the element types of the results.
func (e *Executable) OutputDTypes() (out []DType, err error) {
	err = e.ask(askTypes, func(r *ExecutableRecord) { out = slices.Clone(r.OutputDTypes) }, func() error {
		types, err := e.api.ExecutableOutputTypes(e.x)
		for _, t := range types {
			out = append(out, DType(t))
		}
		return err
	})
	return out, err
}

// OutputDims returns the dimensions of the results, as one device has them.
func (e *Executable) OutputDims() (out [][]int, err error) {
	err = e.ask(askDims, func(r *ExecutableRecord) { out = r.clone().OutputDims }, func() error {
		all, err := e.api.ExecutableOutputDims(e.x)
		for _, dims := range all {
			row := make([]int, len(dims))
			for i, d := range dims {
				row[i] = int(d)
			}
			out = append(out, row)
		}
		return err
	})
	return out, err
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
func (e *Executable) OutputMemoryKinds() (out []string, err error) {
	err = e.ask(askKinds, func(r *ExecutableRecord) { out = slices.Clone(r.OutputKinds) }, func() error { out, err = e.api.ExecutableOutputKinds(e.x); return err })
	return out, err
}

// ParameterMemoryKinds returns the kind of memory that each argument has to live in. It needs PJRT
// 0.102; an older plugin gives an error that matches errors.ErrUnsupported.
func (e *Executable) ParameterMemoryKinds() (out []string, err error) {
	err = e.ask(askParameterKinds, func(r *ExecutableRecord) { out = slices.Clone(r.ParameterKinds) }, func() error { out, err = e.api.ExecutableParameterKinds(e.x); return err })
	return out, err
}

// CostAnalysis returns the compiler's estimate for one run on one device, such as "flops" and
// "bytes accessed" (float32). The map is the caller's.
func (e *Executable) CostAnalysis() (out map[string]any, err error) {
	err = e.ask(askCost, func(r *ExecutableRecord) { out = maps.Clone(r.Cost) }, func() error { out, err = e.api.ExecutableCost(e.x); return err })
	return out, err
}

// MemoryStats returns the compiler's account of the program's memory. A run needs Arguments +
// Outputs + Temp - Alias.
func (e *Executable) MemoryStats() (s CompiledMemoryStats, err error) {
	err = e.ask(askMemory, func(r *ExecutableRecord) { s = r.Memory }, func() error {
		v, err := e.api.ExecutableMemoryStats(e.x)
		s = CompiledMemoryStats{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], v[14]}
		return err
	})
	return s, err
}

// OptimizedProgram returns the program after optimization and partitioning, as one device runs it,
// in the format "hlo_with_config" or "hlo".
func (e *Executable) OptimizedProgram() (p Program, err error) {
	err = e.ask(askOptimized, func(r *ExecutableRecord) {
		p = Program{Code: bytes.Clone(r.Optimized.Code), Format: r.Optimized.Format}
	}, func() error {
		p.Code, p.Format, err = e.api.ExecutableProgram(e.x)
		return err
	})
	return p, err
}

// Serialize writes the executable out for [Client.Load] of the same plugin build on the same kind
// of device: the plugin's bytes after a header with their checksum. An executable that
// [Client.Load] made gives an error that matches [ErrDeserialized], unless [LoadOptions].Keep kept
// the bytes: the CPU plugin, for one, would write it without its machine code, and what is loaded
// from that fails when it runs.
func (e *Executable) Serialize() (b []byte, err error) {
	if e.record != nil {
		err = e.ask(askSerialize, func(r *ExecutableRecord) { b = bytes.Clone(r.Serialized) }, nil)
		return b, err
	}
	if e.executableHandle != nil && e.deserialized {
		if e.serialized != nil {
			return seal(e.serialized, e.params), nil
		}
		return nil, &errkind.Fault{Op: "pjrt: serialize", Err: ErrDeserialized, Hint: "keep those bytes, or have Load keep them with LoadOptions.Keep"}
	}
	err = e.call(askSerialize, func() error { b, err = e.api.ExecutableSerialize(e.x); return err })
	if err != nil {
		return nil, err
	}
	return seal(b, e.params), nil
}

// ask answers a question: from the record, or by f from the plugin.
func (e *Executable) ask(question string, recorded func(*ExecutableRecord), f func() error) error {
	r := e.record
	if r == nil {
		return e.call(question, f)
	}
	if err := r.Missing[question]; err != nil {
		return err
	}
	recorded(r)
	return nil
}
