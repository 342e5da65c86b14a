package v1

// HardwareFeature describes the cores.
func (e *Extended) HardwareFeature() HardwareFeature { return HardwareFeature{} }

// HardwareFeature says what the cores can do besides compute. No embedding engine
// is driven here.
type HardwareFeature struct {
	// Embedding is UNSUPPORTED, V1 or V2 in TensorFlow; empty is UNSUPPORTED.
	Embedding string
}

// ShouldInit, ShouldCheckpoint and ShouldSaveSummary report what this process does
// for the whole run in TensorFlow 1's loops: everything, as every process has all
// variables. BetweenGraph is false: there is one program.
func (e *Extended) ShouldInit() bool { return true }

// ShouldCheckpoint is true.
func (e *Extended) ShouldCheckpoint() bool { return true }

// ShouldSaveSummary is true.
func (e *Extended) ShouldSaveSummary() bool { return true }

// BetweenGraph is false.
func (e *Extended) BetweenGraph() bool { return false }
