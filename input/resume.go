package input

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// resume returns the pipelines that this process reads of a run at a position, and the position of
// each pipeline. It sets s.portion and s.most.
func (s *Steps) resume(p position) (streams []Dataset, at []State, err error) {
	d := s.dataset
	here := jobSize{d.opts.Replicas, d.opts.Processes}
	if inner, ok := d.convertPosition(p); ok {
		p.streams, p.isShared = []State{inner}, d.isShared
		if p.job = (jobSize{here.replicas, 1}); d.isShared {
			p.job = here
		}
	}
	s.plan = d.readPlanFor(p.job, p.isShared)
	from, to := s.plan.firstProcess-p.firstProcess, s.plan.endProcess-p.firstProcess // index range in p.in
	if p.isShared {
		from, to = 0, 1
	}
	if from < 0 || to > p.numProcesses {
		return nil, nil, &errkind.Fault{Match: ErrState,
			Reason: fmt.Sprintf("it is of process %d of %v, this is process %d of %v", p.firstProcess, p.job, d.opts.Process, here),
			Hint:   "join the positions of all processes with JoinStates"}
	}
	if p.job == here && p.isShared == d.isShared {
		streams = d.streams
	} else {
		for v := s.plan.firstProcess; v < s.plan.endProcess; v++ {
			of, dealt, err := d.newStreams(p.job, v)
			if err == nil && dealt != p.isShared {
				err = stateError("its data is dealt to the processes: %v, that of this dataset: %v", p.isShared, dealt)
			}
			if err != nil {
				return nil, nil, err
			}
			if streams = append(streams, of...); dealt {
				break // there is one pipeline for all processes
			}
		}
	}
	at = p.streams
	if !p.isShared {
		at = p.streams[from*p.streamsPerProcess() : to*p.streamsPerProcess()]
	}
	if len(at) != len(streams) {
		return nil, nil, stateError("it has the positions of %d pipelines, the dataset has %d", len(at), len(streams))
	}
	s.maxRows = s.maxRowsAt(p, streams)
	return streams, at, nil
}

// upgradePosition converts a position saved by an earlier version of this package. With the policy Data,
// earlier versions saved one position per process, of its own shard of the stream. The position of
// the last process is at the end of the step, so it is the position of the shared stream.
func (d *DistributedDataset) upgradePosition(p position) (position, error) {
	if p.isShared || p.job.processes == 1 || d.policy != Data || !d.splitsGlobalBatch {
		return p, nil
	}
	last := p.streams[len(p.streams)-1]
	if err := last.validate("shard", 1, 1); err != nil {
		return p, err
	}
	if p.firstProcess+p.numProcesses != p.job.processes || last.Counters[0]%int64(p.job.replicas) != 0 {
		return p, &errkind.Fault{Match: ErrState, Reason: fmt.Sprintf("it is of process %d of %v, as an earlier version saved it", p.firstProcess, p.job),
			Hint: "join the positions of all processes with JoinStates"}
	}
	p.isShared, p.streams, p.firstProcess, p.numProcesses = true, last.Inputs, 0, 1
	return p, nil
}

// convertPosition converts the position of a pipeline that yields the parts of all replicas to the position
// of the same pipeline with the current number of replicas, after the same global batches. It
// returns false if the position cannot be converted.
func (d *DistributedDataset) convertPosition(p position) (State, bool) {
	if !d.splitsGlobalBatch || p.job.replicas == d.opts.Replicas || !p.isShared && p.job.processes != 1 {
		return State{}, false
	}
	at := p.streams[0]
	row, ended := int64(0), int64(0) // row of the current batch, with the rule Sizes
	switch {
	case p.job.replicas <= 1: // batches are not split for one replica
	case at.validate("chunks", 1, 1) == nil && at.Counters[0] == 0:
		at = at.Inputs[0]
	case at.validate("sizes", 3, 1) == nil && (at.Counters[1] == 0 || at.Counters[2] != 0): // after a whole step, or all of them
		row, ended = at.Counters[0], at.Counters[2]
		at = at.Inputs[0]
	default:
		return State{}, false
	}
	switch {
	case d.rule == Sizes:
		return State{Op: "sizes", Counters: []int64{row, 0, ended}, Inputs: []State{at}}, true
	case row != 0:
		return State{}, false
	case d.rule == Chunks:
		return State{Op: "chunks", Counters: []int64{0}, Inputs: []State{at}}, true
	}
	return at, true
}
