package feed

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// InputOptions returns options for input.Distribute that select the data of this process's
// replicas. Processes that share a replica read the same data. It returns a [*strategy.OptionError]
// unless all processes have the same number of replicas, in order, because package input requires
// this.
//
// The processes vote on the end of the data each time that the input is read. The vote is an
// exchange between the devices of all processes. Input that a goroutine prefetches must not vote:
// use data that ends at the same step on every process, such as one dataset that is distributed
// over the processes, or a repeated dataset.
func InputOptions(s *strategy.TPUStrategy) (input.Options, error) {
	internal := engine.Internal(s)
	runtime, numReplicas := internal.Runtime(), s.NumReplicasInSync()
	o := input.Options{Replicas: numReplicas, Processes: runtime.Count, Process: runtime.Process, PerWorkerOnly: true,
		Logger: internal.Logger()}
	if !runtime.IsMultiProcess() {
		o.Processes, o.Process = 1, 0
		return o, nil
	}
	o.AnyProcess = s.AnyProcess
	if replica, ok := sharedReplica(s); ok {
		o.Processes, o.Process = numReplicas, replica
		return o, nil
	}
	next := 0
	for i, replicas := range s.ProcessReplicas() {
		if len(replicas) != numReplicas/runtime.Count || replicas[0] != next {
			return o, &strategy.OptionError{Option: "Assignment", Reason: fmt.Sprintf(
				"process %d has replicas %v of %d; input needs them in order, %d for each of %d processes",
				i, replicas, numReplicas, numReplicas/runtime.Count, runtime.Count)}
		}
		next += len(replicas)
	}
	return o, nil
}

// sharedReplica returns the one replica that this process shares with others. ok is false unless
// each replica is shared by the same number of consecutive processes.
func sharedReplica(s *strategy.TPUStrategy) (replica int, ok bool) {
	runtime, numReplicas := engine.Internal(s).Runtime(), s.NumReplicasInSync()
	count := runtime.Count
	if count <= numReplicas || count%numReplicas != 0 {
		return 0, false
	}
	for i, replicas := range s.ProcessReplicas() {
		if len(replicas) != 1 || replicas[0] != i/(count/numReplicas) {
			return 0, false
		}
	}
	return runtime.Process / (count / numReplicas), true
}
