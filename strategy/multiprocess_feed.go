package strategy

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// localPerReplica copies a host value for each replica of this process, in the order of
// [TPUStrategy.LocalReplicas].
func (s *TPUStrategy) localPerReplica(ctx context.Context, values []any, a logical.Annotation) (*PerReplica, error) {
	const op = "per-replica value"
	local := s.machine.Groups
	all := make([]*tensors.Tensor, len(values))
	for i, value := range values {
		var err error
		if all[i], err = s.replicaTensor(ctx, op, value); err != nil {
			return nil, noTensor(fmt.Sprintf("value of replica %d", local[i]), err)
		}
		if !all[i].Shape().Equal(all[0].Shape()) {
			return nil, fault.New(ValueError, op, "pad the batches: with several processes a value has one shape on all replicas",
				"value of replica %d has shape %s, that of replica %d %s", local[i], all[i].Shape(), local[0], all[0].Shape())
		}
	}
	v, err := s.uploaded(ctx, true, all[0].DType(), all[0].Shape().Dimensions, a, func(r int, use func([]byte)) error {
		return all[s.batchIndex(r, true)].ConstBytes(use)
	})
	if err != nil {
		return nil, err
	}
	return v.(*PerReplica), nil
}

// allTensors are values that are all tensors of package input.
func allTensors(values []any) ([]input.Tensor, bool) {
	all := make([]input.Tensor, len(values))
	for i, value := range values {
		var ok bool
		if all[i], ok = value.(input.Tensor); !ok {
			return nil, false
		}
	}
	return all, true
}

// ownTensors are those of this process's replicas, of a tensor for each replica of all processes.
func (s *TPUStrategy) ownTensors(all []input.Tensor) ([]input.Tensor, error) {
	for r, t := range all {
		if !t.Like(all[0]) {
			return nil, fault.New(ValueError, "per-replica value", "pad the values: with several processes a value has one shape on all replicas",
				"that of replica %d is %s, that of replica 0 %s", r, t, all[0])
		}
	}
	own := make([]input.Tensor, len(s.machine.Groups))
	for i, r := range s.machine.Groups {
		own[i] = all[r]
	}
	return own, nil
}

// localTensors is localPerReplica for tensors of package input, which it copies from where they
// lie; much is copied to the devices side by side. It is what a feed calls for each batch.
func (s *TPUStrategy) localTensors(ctx context.Context, values []input.Tensor, a logical.Annotation) (*PerReplica, error) {
	if err := RefuseTracing(ctx, "per-replica value", fault.InsteadOfGiving); err != nil {
		return nil, err
	}
	const op = "local tensors"
	local := s.machine.Groups
	if len(values) != len(local) {
		return nil, fault.New(ValueError, op, "give one tensor for each of LocalReplicas",
			"%d tensors for the %d replicas %v of process %d", len(values), len(local), local, s.machine.Process)
	}
	dtype, ok := values[0].Kind().DType()
	if !ok {
		return nil, fault.New(TypeError, op, "turn it into numbers with Map", "%s cannot be on a device", values[0])
	}
	for i, t := range values {
		if !t.Like(values[0]) {
			return nil, fault.New(ValueError, op, "pad the batches: a compiled step has one shape for all",
				"tensor of replica %d is %s, that of replica %d %s", local[i], t, local[0], values[0])
		}
	}
	v, err := s.uploadedBy(true, dtype, values[0].Dims(), a, func(l *mesh.Layout, buffers mesh.Buffers) error {
		return s.uploadHeld(ctx, l, func(r int) []byte { return values[s.batchIndex(r, true)].Bytes() }, buffers)
	})
	if err != nil {
		return nil, err
	}
	return v.(*PerReplica), nil
}

// shares is among how many replicas a batch is cut: a global one, or the rows of this process's
// replicas.
func (s *TPUStrategy) shares(local bool) int {
	if local {
		return len(s.machine.Groups)
	}
	return s.replicas
}

// batchIndex is which part of a batch is a replica's: of a global one, or of the rows of this
// process's replicas.
func (s *TPUStrategy) batchIndex(replica int, local bool) int {
	if !local {
		return replica
	}
	i, _ := slices.BinarySearch(s.machine.Groups, replica)
	return i
}

// InputOptions returns the options with which input.Distribute gives this process the data of its
// replicas, with a vote of the processes on the end of the data. Processes that share a replica are
// one to package input, and read the same. If the processes do not have equally many replicas each,
// in order, it returns an [*OptionError], because package input deals data in that way.
//
// The vote is an exchange between the processes, launched where the input is read. Input that a
// goroutine reads ahead of the steps must not vote: use data that ends at the same step on every
// process, such as one dataset that is dealt to them, or a repeated dataset.
func (s *TPUStrategy) InputOptions() (input.Options, error) {
	o := input.Options{Replicas: s.replicas, Processes: s.machine.Count, Process: s.machine.Process, ProcessPipelines: true, Logger: s.opts.Logger}
	if !s.machine.Several() {
		o.Processes, o.Process = 1, 0
		return o, nil
	}
	o.AnyProcess = s.AnyProcess
	if replica, ok := s.sharedReplica(); ok {
		o.Processes, o.Process = s.replicas, replica
		return o, nil
	}
	next := 0
	for i, replicas := range s.ProcessReplicas() {
		if len(replicas) != s.replicas/s.machine.Count || replicas[0] != next {
			return o, &OptionError{Option: "Assignment", Reason: fmt.Sprintf(
				"process %d has replicas %v of %d; input needs them in order, %d for each of %d processes",
				i, replicas, s.replicas, s.replicas/s.machine.Count, s.machine.Count)}
		}
		next += len(replicas)
	}
	return o, nil
}

// sharedReplica returns the one replica of this process, if there are more processes than replicas
// and equally many in a row share each replica.
func (s *TPUStrategy) sharedReplica() (replica int, ok bool) {
	count := s.machine.Count
	if count <= s.replicas || count%s.replicas != 0 {
		return 0, false
	}
	for i, replicas := range s.ProcessReplicas() {
		if len(replicas) != 1 || replicas[0] != i/(count/s.replicas) {
			return 0, false
		}
	}
	return s.machine.Process / (count / s.replicas), true
}
