package pjrt

import (
	"bytes"
	"errors"
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

// The questions of an ExecutableRecord, as the errors of an Executable name them.
const (
	askName           = "executable name"
	askFingerprint    = "fingerprint"
	askCounts         = "executable counts"
	askCode           = "code size"
	askTypes          = "output types"
	askDims           = "output dimensions"
	askKinds          = "output memory kinds"
	askParameterKinds = "parameter memory kinds"
	askCost           = "cost analysis"
	askMemory         = "compiled memory stats"
	askOptimized      = "optimized program"
	askSerialize      = "serialize"
)

// Record asks e for everything that it tells. What the plugin does not tell is an entry of Missing.
// The only error is that e is closed.
func (e *Executable) Record() (ExecutableRecord, error) {
	if e.record != nil {
		return e.record.clone(), nil
	}
	r := ExecutableRecord{Missing: map[string]*Error{}}
	var closed error
	note := func(question string, err error) {
		var told *Error
		switch {
		case err == nil:
		case errors.Is(err, ErrClosed):
			closed = err
		case errors.As(err, &told):
			r.Missing[question] = told
		default:
			r.Missing[question] = &Error{Op: question, Code: Unknown, Msg: err.Error()}
		}
	}
	var err error
	r.Name, err = e.Name()
	note(askName, err)
	r.Fingerprint, err = e.Fingerprint()
	note(askFingerprint, err)
	r.Replicas, r.Partitions, r.Outputs, err = e.Counts()
	note(askCounts, err)
	r.GeneratedCode, err = e.SizeOfGeneratedCode()
	note(askCode, err)
	r.OutputDTypes, err = e.OutputDTypes()
	note(askTypes, err)
	r.OutputDims, err = e.OutputDims()
	note(askDims, err)
	r.OutputKinds, err = e.OutputMemoryKinds()
	note(askKinds, err)
	r.ParameterKinds, err = e.ParameterMemoryKinds()
	note(askParameterKinds, err)
	r.Cost, err = e.CostAnalysis()
	note(askCost, err)
	r.Memory, err = e.MemoryStats()
	note(askMemory, err)
	r.Optimized, err = e.OptimizedProgram()
	note(askOptimized, err)
	r.Serialized, err = e.Serialize()
	note(askSerialize, err)
	return r, closed
}

// Executable returns an executable that tells what the record holds. It holds no memory of a
// plugin: Close does nothing.
func (r ExecutableRecord) Executable() *Executable {
	copied := r.clone()
	return &Executable{record: &copied, owned: true}
}

func (r ExecutableRecord) clone() ExecutableRecord {
	r.OutputDTypes, r.OutputKinds, r.ParameterKinds = slices.Clone(r.OutputDTypes), slices.Clone(r.OutputKinds), slices.Clone(r.ParameterKinds)
	r.OutputDims = slices.Clone(r.OutputDims)
	for i, dims := range r.OutputDims {
		r.OutputDims[i] = slices.Clone(dims)
	}
	r.Cost, r.Missing = maps.Clone(r.Cost), maps.Clone(r.Missing)
	r.Optimized.Code, r.Serialized = bytes.Clone(r.Optimized.Code), bytes.Clone(r.Serialized)
	return r
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
