package v1

// HardwareFeature returns the features of the cores.
func (e *Extended) HardwareFeature() HardwareFeature { return HardwareFeature{} }

// HardwareFeature describes features of the cores. The embedding engine is not supported.
type HardwareFeature struct {
	// Embedding is UNSUPPORTED, V1 or V2 in TensorFlow; empty is UNSUPPORTED.
	Embedding string
}

// ShouldInit reports whether this process initializes the variables. It is TensorFlow's
// experimental_should_init. It returns true, because every process has all variables.
func (e *Extended) ShouldInit() bool { return true }

// ShouldCheckpoint reports whether this process saves checkpoints. It is TensorFlow's
// should_checkpoint. It returns true.
func (e *Extended) ShouldCheckpoint() bool { return true }

// ShouldSaveSummary reports whether this process saves summaries. It is TensorFlow's
// should_save_summary. It returns true.
func (e *Extended) ShouldSaveSummary() bool { return true }

// BetweenGraph reports whether each worker builds its own graph. It is TensorFlow's
// experimental_between_graph. It returns false, because there is one program.
func (e *Extended) BetweenGraph() bool { return false }
