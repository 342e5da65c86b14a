package pjrt

import (
	"bytes"
	"maps"
	"slices"
)

// ExecutableRecord holds as data what an [Executable] tells: a program that was compiled in another
// process is known by its record. encoding/gob carries it.
type ExecutableRecord struct {
	// Name and Fingerprint are those of [Executable.Name] and [Executable.Fingerprint].
	Name, Fingerprint string
	// Replicas, Partitions and Outputs are those of [Executable.Counts].
	Replicas, Partitions, Outputs int
	// GeneratedCode is the size of the machine code in bytes; -1 if it is not known.
	GeneratedCode int64
	// OutputDTypes are the element types of the results.
	OutputDTypes []DType
	// OutputDims are the dimensions of the results, as one device has them.
	OutputDims [][]int
	// OutputKinds and ParameterKinds are the kinds of memory of the results and of the arguments.
	OutputKinds, ParameterKinds []string
	// Cost is the compiler's estimate for one run; see [Executable.CostAnalysis].
	Cost map[string]any
	// Memory is the compiler's account of the memory of one run.
	Memory CompiledMemoryStats
	// Optimized is the program after optimization; see [Executable.OptimizedProgram].
	Optimized Program
	// Serialized is the program for [Client.Load], as [Executable.Serialize] wrote it.
	Serialized []byte
	// Missing has the error of each question that the plugin did not answer.
	Missing map[string]*Error
}

func (r ExecutableRecord) clone() ExecutableRecord {
	r.OutputDTypes, r.OutputKinds, r.ParameterKinds = slices.Clone(r.OutputDTypes), slices.Clone(r.OutputKinds), slices.Clone(r.ParameterKinds)
	r.OutputDims = cloneDims(r.OutputDims)
	r.Cost, r.Missing = maps.Clone(r.Cost), maps.Clone(r.Missing)
	r.Optimized.Code, r.Serialized = bytes.Clone(r.Optimized.Code), bytes.Clone(r.Serialized)
	return r
}

func cloneDims(all [][]int) [][]int {
	out := slices.Clone(all)
	for i, dims := range out {
		out[i] = slices.Clone(dims)
	}
	return out
}

// CompiledMemoryStats says how much memory one device needs to run a program, in bytes. A figure
// that an older plugin does not know is 0.
type CompiledMemoryStats struct {
	// The figures of the device's own memory: of the machine code, the arguments, the results, the
	// arguments whose memory results take over (Alias), and what the run needs besides (Temp).
	GeneratedCode, Arguments, Outputs, Alias, Temp int64
	// The same figures of the host's memory.
	HostGeneratedCode, HostArguments, HostOutputs, HostAlias, HostTemp int64
	// Peak and Total are of the whole run. Peak needs PJRT 0.72, and Total 0.90.
	Peak, Total int64
	// TotalAllocation, IndefiniteAllocations and PeakUnpaddedHeap are the allocator's account of
	// the run; they need PJRT 0.104.
	TotalAllocation, IndefiniteAllocations, PeakUnpaddedHeap int64
}
