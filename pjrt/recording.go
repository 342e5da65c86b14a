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
	note := func(q question, err error) {
		var told *Error
		switch {
		case err == nil:
		case errors.Is(err, ErrClosed):
			closed = err
		case errors.As(err, &told):
			r.Missing[q.name] = told
		default:
			r.Missing[q.name] = &Error{Op: q.name, Code: Unknown, Msg: err.Error()}
		}
	}
	for _, q := range []question{askName, askFingerprint, askCounts, askCode, askTypes, askDims, askKinds, askParameterKinds, askCost, askMemory, askOptimized} {
		note(q, e.call(q.name, func() error { return q.ask(e.executableHandle, &r) }))
	}
	var err error
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
