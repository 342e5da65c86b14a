package pjrt

import "github.com/tpustrategy/tpustrategy/pjrt/internal/capi"

// executableHandle is the inner half, without a way back to the Executable.
type executableHandle struct {
	handle
	api *capi.API
	x   capi.Executable
	// deserialized says that it came from serialized bytes, which are kept if the caller asked for
	// that.
	deserialized bool
	serialized   []byte
	// params are the types of the parameters, for what is serialized; nil if nobody told them.
	params *[]*shape
}

// call runs f on the live C object.
func (h *executableHandle) call(op string, f func() error) error {
	if h == nil {
		return errNotMade(op, "executable", "Compile")
	}
	return h.handle.call(op, f)
}

// question is what an executable is asked: its name, by which errors and [ExecutableRecord].Missing know
// it, and how the plugin's answer comes into a record.
type question struct {
	name string
	ask  func(h *executableHandle, r *ExecutableRecord) error
}

var (
	askName = question{"executable name", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.Name, err = h.api.ExecutableName(h.x)
		return err
	}}
	askFingerprint = question{"fingerprint", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.Fingerprint, err = h.api.ExecutableFingerprint(h.x)
		return err
	}}
	askCounts = question{"executable counts", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.Replicas, r.Partitions, r.Outputs, err = h.api.ExecutableCounts(h.x)
		return err
	}}
	askCode = question{"code size", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.GeneratedCode, err = h.api.ExecutableCodeSize(h.x)
		return err
	}}
	askTypes = question{"output types", func(h *executableHandle, r *ExecutableRecord) error {
		types, err := h.api.ExecutableOutputTypes(h.x)
		for _, t := range types {
			r.OutputDTypes = append(r.OutputDTypes, DType(t))
		}
		return err
	}}
	askDims = question{"output dimensions", func(h *executableHandle, r *ExecutableRecord) error {
		all, err := h.api.ExecutableOutputDims(h.x)
		for _, dims := range all {
			row := make([]int, len(dims))
			for i, d := range dims {
				row[i] = int(d)
			}
			r.OutputDims = append(r.OutputDims, row)
		}
		return err
	}}
	askKinds = question{"output memory kinds", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.OutputKinds, err = h.api.ExecutableOutputKinds(h.x)
		return err
	}}
	askParameterKinds = question{"parameter memory kinds", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.ParameterKinds, err = h.api.ExecutableParameterKinds(h.x)
		return err
	}}
	askCost = question{"cost analysis", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.Cost, err = h.api.ExecutableCost(h.x)
		return err
	}}
	askMemory = question{"compiled memory stats", func(h *executableHandle, r *ExecutableRecord) error {
		v, err := h.api.ExecutableMemoryStats(h.x)
		r.Memory = CompiledMemoryStats{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], v[14]}
		return err
	}}
	askOptimized = question{"optimized program", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.Optimized.Code, r.Optimized.Format, err = h.api.ExecutableProgram(h.x)
		return err
	}}
	askSerialize = question{"serialize", func(h *executableHandle, r *ExecutableRecord) error {
		b, err := h.api.ExecutableSerialize(h.x)
		if err == nil {
			r.Serialized = seal(b, h.params)
		}
		return err
	}}
)
