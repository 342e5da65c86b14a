package pjrt

import "errors"

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
