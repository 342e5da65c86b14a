package pjrt

import (
	"bytes"
	"errors"
	"maps"
	"slices"
)

// ExecutableRecord contains the properties of an [Executable] as plain data. It can be encoded with
// encoding/gob and thus sent to the process that requested a compilation.
type ExecutableRecord struct {
	// Name and Fingerprint are the results of [Executable.Name] and [Executable.Fingerprint].
	Name, Fingerprint string
	// Replicas, Partitions and Outputs are the results of [Executable.Counts].
	Replicas, Partitions, Outputs int
	// GeneratedCode is the size of the machine code in bytes, or -1 if it is unknown.
	GeneratedCode int64
	// OutputDTypes are the element types of the results.
	OutputDTypes []DType
	// OutputDims are the dimensions of the results on one device.
	OutputDims [][]int
	// OutputKinds and ParameterKinds are the memory kinds of the results and of the arguments.
	OutputKinds, ParameterKinds []string
	// Cost is the result of [Executable.CostAnalysis].
	Cost map[string]any
	// Memory is the result of [Executable.MemoryStats].
	Memory CompiledMemoryStats
	// Optimized is the result of [Executable.OptimizedProgram].
	Optimized Program
	// Serialized is the result of [Executable.Serialize].
	Serialized []byte
	// Missing contains the errors of properties that the plugin did not return, by property name.
	Missing map[string]*Error
}

func (r ExecutableRecord) clone() ExecutableRecord {
	r.OutputDTypes, r.OutputKinds, r.ParameterKinds = slices.Clone(r.OutputDTypes), slices.Clone(r.OutputKinds),
		slices.Clone(r.ParameterKinds)
	r.OutputDims = cloneDims(r.OutputDims)
	r.Cost, r.Missing = maps.Clone(r.Cost), maps.Clone(r.Missing)
	r.Optimized.Code, r.Serialized = bytes.Clone(r.Optimized.Code), bytes.Clone(r.Serialized)
	return r
}

func cloneDims(d [][]int) [][]int {
	out := slices.Clone(d)
	for i, d := range out {
		out[i] = slices.Clone(d)
	}
	return out
}

// CompiledMemoryStats contains the compiler's estimate of the memory, in bytes, that a program uses
// on one device. A value that the plugin does not report is 0.
type CompiledMemoryStats struct {
	// These values describe the memory of the device: machine code, arguments, results, arguments
	// whose memory the results reuse (Alias), and temporary memory of the run (Temp).
	GeneratedCode, Arguments, Outputs, Alias, Temp int64
	// These values describe the memory of the host.
	HostGeneratedCode, HostArguments, HostOutputs, HostAlias, HostTemp int64
	// Peak and Total describe the complete run. Peak requires PJRT 0.72, and Total PJRT 0.90.
	Peak, Total int64
	// TotalAllocation, IndefiniteAllocations and PeakUnpaddedHeap are statistics of the allocator
	// for the run. They require PJRT 0.104.
	TotalAllocation, IndefiniteAllocations, PeakUnpaddedHeap int64
}

// Record returns all properties of e. Missing contains an error for each property that the plugin
// does not report. Record itself returns an error only if e is closed.
func (e *Executable) Record() (ExecutableRecord, error) {
	if e.record != nil {
		return e.record.clone(), nil
	}
	r := ExecutableRecord{Missing: map[string]*Error{}}
	var closed error
	add := func(p property, err error) {
		var pluginErr *Error
		switch {
		case err == nil:
		case errors.Is(err, ErrClosed):
			closed = err
		case errors.As(err, &pluginErr):
			r.Missing[p.name] = pluginErr
		default:
			r.Missing[p.name] = &Error{Op: p.name, Code: Unknown, Msg: err.Error()}
		}
	}
	for _, p := range recordProperties {
		add(p, e.withHandle(p.name, func() error { return p.read(e.executableHandle, &r) }))
	}
	var err error
	r.Serialized, err = e.Serialize()
	add(propSerialized, err)
	return r, closed
}

// Executable returns an Executable with the properties of the record. It owns no memory of a
// plugin, and its Close has no effect.
func (r ExecutableRecord) Executable() *Executable {
	copied := r.clone()
	return &Executable{record: &copied, owned: true}
}
