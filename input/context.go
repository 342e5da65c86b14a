package input

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Context tells the function of [FromFunction] for which process it makes a dataset: TensorFlow's
// tf.distribute.InputContext. The zero value is invalid; a single process with a single replica is
// Context{1, 0, 1}.
type Context struct {
	NumInputPipelines int // the number of processes that read input: TensorFlow's num_input_pipelines
	InputPipelineID   int // this process, from 0: TensorFlow's input_pipeline_id
	NumReplicasInSync int // the number of replicas of all processes together
}

// PerReplicaBatchSize returns the share of one replica in a global batch, in rows: TensorFlow's
// get_per_replica_batch_size. The error of a global batch that the replicas cannot share
// evenly matches [ErrIndivisible].
func (c Context) PerReplicaBatchSize(global int) (int, error) {
	if c.NumReplicasInSync < 1 || global < 0 || global%c.NumReplicasInSync != 0 {
		return 0, indivisible(global, c.NumReplicasInSync)
	}
	return global / c.NumReplicasInSync, nil
}

// String prints the pipeline's number and the number of pipelines.
func (c Context) String() string {
	return fmt.Sprintf("Context(input pipeline id %d, total: %d)", c.InputPipelineID, c.NumInputPipelines)
}

// ErrIndivisible is matched by a global batch that the replicas cannot share evenly.
var ErrIndivisible = errkind.New(errkind.ValueError, "input: the batch is not divisible")

func indivisible(global, replicas int) error {
	hint := ""
	if replicas > 0 && global > 0 {
		hint = fmt.Sprintf("the next size that is divisible is %d", (global/replicas+1)*replicas)
	}
	return &errkind.Fault{Op: "input", Reason: fmt.Sprintf("the global batch size %d is not divisible by the number of replicas in sync %d", global, replicas),
		Match: ErrIndivisible, Hint: hint}
}

// uneven is the error of processes that do not have the same number of replicas.
func uneven(replicas, processes int) error {
	return wrong("distribute", "give every process the same number of replicas", "%d replicas in sync cannot be divided by %d processes", replicas, processes)
}
