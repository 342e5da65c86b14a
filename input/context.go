package input

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Context identifies one of the input pipelines that [FromFunction] creates, normally one per
// process. It is TensorFlow's tf.distribute.InputContext. The zero value is invalid: a single
// process with a single replica has Context{1, 0, 1}.
type Context struct {
	NumInputPipelines int // number of input pipelines, normally one per process: TensorFlow's num_input_pipelines
	InputPipelineID   int // index of this pipeline, from 0: TensorFlow's input_pipeline_id
	NumReplicasInSync int // number of replicas of all processes together
}

// PerReplicaBatchSize returns global divided by the number of replicas, in rows. It is TensorFlow's
// get_per_replica_batch_size. If global is not divisible by the number of replicas, the error
// matches [ErrIndivisible].
func (c Context) PerReplicaBatchSize(global int) (int, error) {
	if c.NumReplicasInSync < 1 || global < 0 || global%c.NumReplicasInSync != 0 {
		return 0, indivisibleError(global, c.NumReplicasInSync)
	}
	return global / c.NumReplicasInSync, nil
}

// String returns the pipeline's index and the number of pipelines.
func (c Context) String() string {
	return fmt.Sprintf("Context(input pipeline id %d, total: %d)", c.InputPipelineID, c.NumInputPipelines)
}

// ErrIndivisible matches errors for a global batch size that is not divisible by the number of
// replicas.
var ErrIndivisible = errkind.New(errkind.ValueError, "input: the batch is not divisible")

func indivisibleError(global, replicas int) error {
	hint := ""
	if replicas > 0 && global > 0 {
		hint = fmt.Sprintf("the next size that is divisible is %d", (global/replicas+1)*replicas)
	}
	return &errkind.Fault{Op: "input", Reason: fmt.Sprintf(
		"the global batch size %d is not divisible by the number of replicas in sync %d", global, replicas),
		Match: ErrIndivisible, Hint: hint}
}

// unevenReplicasError returns an error for a number of replicas that is not divisible by the number
// of processes.
func unevenReplicasError(replicas, processes int) error {
	return valueError("distribute", "give every process the same number of replicas",
		"%d replicas in sync cannot be divided by %d processes", replicas, processes)
}
