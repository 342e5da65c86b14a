package input

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Context tells a function that makes a dataset for which host it does so. The zero value is invalid; a single host and
// replica is Context{1, 0, 1}.
type Context struct {
	NumInputPipelines int // hosts that read input
	InputPipelineID   int // this host, from 0
	NumReplicasInSync int // replicas of all hosts together
}

// PerReplicaBatchSize is the share of one replica in a global batch, in rows. A remainder is an [IndivisibleBatchError].
func (c Context) PerReplicaBatchSize(global int) (int, error) {
	if c.NumReplicasInSync < 1 || global < 0 || global%c.NumReplicasInSync != 0 {
		return 0, &IndivisibleBatchError{Global: global, Replicas: c.NumReplicasInSync}
	}
	return global / c.NumReplicasInSync, nil
}

// String names the pipeline and their number.
func (c Context) String() string {
	return fmt.Sprintf("Context(input pipeline id %d, total: %d)", c.InputPipelineID, c.NumInputPipelines)
}

// IndivisibleBatchError says that the replicas cannot share a global batch evenly.
type IndivisibleBatchError struct {
	Global, Replicas int
}

func (e *IndivisibleBatchError) Error() string {
	msg := fmt.Sprintf("input: the global batch size %d is not divisible by the number of replicas in sync %d", e.Global, e.Replicas)
	if e.Replicas > 0 && e.Global > 0 {
		msg += fmt.Sprintf(": the next one that is, is %d", (e.Global/e.Replicas+1)*e.Replicas)
	}
	return msg
}

// Kind is ValueError.
func (*IndivisibleBatchError) Kind() errkind.Kind { return errkind.ValueError }

// UnevenReplicasError says that the hosts do not have the same number of replicas.
type UnevenReplicasError struct {
	Replicas, Hosts int
}

func (e *UnevenReplicasError) Error() string {
	return fmt.Sprintf("input: every host needs the same number of replicas, but %d replicas in sync cannot be divided by %d hosts", e.Replicas, e.Hosts)
}

// Kind is ValueError.
func (*UnevenReplicasError) Kind() errkind.Kind { return errkind.ValueError }
