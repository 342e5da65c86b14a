package pjrt

// property is a property of an executable that the plugin can report. name identifies the property in
// errors and in [ExecutableRecord].Missing. read queries the plugin and stores the result in a record.
type property struct {
	name string
	read func(h *executableHandle, r *ExecutableRecord) error
}

var (
	propName = property{"executable name", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.Name, err = h.api.ExecutableName(h.executable)
		return err
	}}
	propFingerprint = property{"fingerprint", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.Fingerprint, err = h.api.ExecutableFingerprint(h.executable)
		return err
	}}
	propCounts = property{"executable counts", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.Replicas, r.Partitions, r.Outputs, err = h.api.ExecutableCounts(h.executable)
		return err
	}}
	propGeneratedCode = property{"code size", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.GeneratedCode, err = h.api.ExecutableCodeSize(h.executable)
		return err
	}}
	propOutputDTypes = property{"output types", func(h *executableHandle, r *ExecutableRecord) error {
		types, err := h.api.ExecutableOutputTypes(h.executable)
		for _, t := range types {
			r.OutputDTypes = append(r.OutputDTypes, DType(t))
		}
		return err
	}}
	propOutputDims = property{"output dimensions", func(h *executableHandle, r *ExecutableRecord) error {
		all, err := h.api.ExecutableOutputDims(h.executable)
		for _, dims := range all {
			row := make([]int, len(dims))
			for i, d := range dims {
				row[i] = int(d)
			}
			r.OutputDims = append(r.OutputDims, row)
		}
		return err
	}}
	propOutputMemoryKinds = property{"output memory kinds", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.OutputKinds, err = h.api.ExecutableOutputKinds(h.executable)
		return err
	}}
	propParameterKinds = property{"parameter memory kinds", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.ParameterKinds, err = h.api.ExecutableParameterKinds(h.executable)
		return err
	}}
	propCost = property{"cost analysis", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.Cost, err = h.api.ExecutableCost(h.executable)
		return err
	}}
	propMemory = property{"compiled memory stats", func(h *executableHandle, r *ExecutableRecord) error {
		v, err := h.api.ExecutableMemoryStats(h.executable)
		r.Memory = CompiledMemoryStats{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12],
			v[13], v[14]}
		return err
	}}
	propOptimized = property{"optimized program", func(h *executableHandle, r *ExecutableRecord) (err error) {
		r.Optimized.Code, r.Optimized.Format, err = h.api.ExecutableProgram(h.executable)
		return err
	}}
	propSerialized = property{"serialize", func(h *executableHandle, r *ExecutableRecord) error {
		b, err := h.api.ExecutableSerialize(h.executable)
		if err == nil {
			r.Serialized = encodeSerialized(b, h.params)
		}
		return err
	}}
)

// recordProperties are the properties of an [ExecutableRecord], except propSerialized.
var recordProperties = []property{propName, propFingerprint, propCounts, propGeneratedCode, propOutputDTypes,
	propOutputDims, propOutputMemoryKinds, propParameterKinds, propCost, propMemory, propOptimized}
