package input

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// resumePipelines returns the pipelines of the saved run that this process reads, and the position
// of each pipeline. It sets s.plan and s.maxRows.
func (s *Steps) resumePipelines(p position) (streams []Dataset, states []State, err error) {
	d := s.dataset
	current := jobSize{d.opts.Replicas, d.opts.Processes}
	if inner, ok := d.convertPosition(p); ok {
		p.streams, p.isShared = []State{inner}, d.isShared
		if p.job = (jobSize{current.replicas, 1}); d.isShared {
			p.job = current
		}
	}
	s.plan = d.readPlanFor(p.job, p.isShared)
	first, end := s.plan.firstProcess-p.firstProcess, s.plan.endProcess-p.firstProcess // index range in p.in
	if p.isShared {
		first, end = 0, 1
	}
	if first < 0 || end > p.numProcesses {
		return nil, nil, &errkind.Fault{Match: ErrState,
			Reason: fmt.Sprintf("it is of process %d of %v, this is process %d of %v", p.firstProcess, p.job, d.opts.Process,
				current),
			Hint: "join the positions of all processes with JoinStates"}
	}
	if p.job == current && p.isShared == d.isShared {
		streams = d.streams
	} else {
		for v := s.plan.firstProcess; v < s.plan.endProcess; v++ {
			ds, dealt, err := d.newStreams(p.job, v)
			if err == nil && dealt != p.isShared {
				err = stateError("its data is dealt to the processes: %v, that of this dataset: %v", p.isShared, dealt)
			}
			if err != nil {
				return nil, nil, err
			}
			if streams = append(streams, ds...); dealt {
				break // there is one pipeline for all processes
			}
		}
	}
	states = p.streams
	if !p.isShared {
		states = p.streams[first*p.streamsPerProcess() : end*p.streamsPerProcess()]
	}
	if len(states) != len(streams) {
		return nil, nil, stateError("it has the positions of %d pipelines, the dataset has %d", len(states), len(streams))
	}
	s.maxRows = s.maxRowsAt(p, streams)
	return streams, states, nil
}

// upgradePosition converts a position saved by an earlier version of this package. With the policy
// Data, earlier versions saved one position per process, each for a shard of the same stream. The
// position of the last process is at the end of the step, so it becomes the position of the shared
// stream.
func (d *DistributedDataset) upgradePosition(p position) (position, error) {
	if p.isShared || p.job.processes == 1 || d.policy != Data || !d.splitsGlobalBatch {
		return p, nil
	}
	last := p.streams[len(p.streams)-1]
	if err := last.validate("shard", 1, 1); err != nil {
		return p, err
	}
	if p.firstProcess+p.numProcesses != p.job.processes || last.Counters[0]%int64(p.job.replicas) != 0 {
		return p, &errkind.Fault{Match: ErrState,
			Reason: fmt.Sprintf("it is of process %d of %v, as an earlier version saved it", p.firstProcess, p.job),
			Hint:   "join the positions of all processes with JoinStates"}
	}
	p.isShared, p.streams, p.firstProcess, p.numProcesses = true, last.Inputs, 0, 1
	return p, nil
}

// convertPosition converts a position that was saved with another number of replicas, so that the
// current replicas continue after the same global batches. It returns false if this is not
// possible.
func (d *DistributedDataset) convertPosition(p position) (State, bool) {
	if !d.splitsGlobalBatch || p.job.replicas == d.opts.Replicas || !p.isShared && p.job.processes != 1 {
		return State{}, false
	}
	from := splitters[RuleAuto]
	if p.job.replicas > 1 {
		from = splitterOf(p.streams[0])
	}
	boundary, ok := from.parseState(p.streams[0])
	if !ok || p.job.replicas > 1 && from.op == "" {
		return State{}, false
	}
	return splitters[d.rule].stateAt(boundary)
}
