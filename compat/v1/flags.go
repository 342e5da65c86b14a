package v1

// HardwareFeature returns the zero value, because the embedding engine is not supported.
func (e *Extended) HardwareFeature() HardwareFeature { return HardwareFeature{} }

// HardwareFeature describes features of the TPU cores. The embedding engine is not supported.
type HardwareFeature struct {
	// Embedding is UNSUPPORTED, V1 or V2 in TensorFlow; empty is UNSUPPORTED.
	Embedding string
}

// ShouldInit always returns true, because every process creates all variables. It is TensorFlow's
// experimental_should_init.
func (e *Extended) ShouldInit() bool { return true }

// ShouldCheckpoint always returns true, because every process takes part in saving checkpoints. It
// is TensorFlow's should_checkpoint.
func (e *Extended) ShouldCheckpoint() bool { return true }

// ShouldSaveSummary always returns true. TensorFlow's should_save_summary reports whether a process
// saves summaries.
func (e *Extended) ShouldSaveSummary() bool { return true }

// BetweenGraph always returns false, because all workers run the same program. TensorFlow's
// experimental_between_graph reports whether each worker builds its own graph.
func (e *Extended) BetweenGraph() bool { return false }
