package input

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// resume returns the pipelines that this process reads of a run at a position, and the position of
// each pipeline. It sets s.portion and s.most.
func (s *Steps) resume(p position) (streams []Dataset, at []State, err error) {
	d := s.d
	here := division{d.opts.Replicas, d.opts.Processes}
	if inner, ok := d.recut(p); ok {
		p.in, p.dealt = []State{inner}, d.dealt
		if p.of = (division{here.replicas, 1}); d.dealt {
			p.of = here
		}
	}
	s.portion = d.portionOf(p.of, p.dealt)
	from, to := s.portion.from-p.first, s.portion.to-p.first // index range in p.in
	if p.dealt {
		from, to = 0, 1
	}
	if from < 0 || to > p.count {
		return nil, nil, &errkind.Fault{Match: ErrState,
			Reason: fmt.Sprintf("it is of process %d of %v, this is process %d of %v", p.first, p.of, d.opts.Process, here),
			Hint:   "join the positions of all processes with JoinStates"}
	}
	if p.of == here && p.dealt == d.dealt {
		streams = d.streams
	} else {
		for v := s.portion.from; v < s.portion.to; v++ {
			of, dealt, err := d.pipelines(p.of, v)
			if err == nil && dealt != p.dealt {
				err = misfit("its data is dealt to the processes: %v, that of this dataset: %v", p.dealt, dealt)
			}
			if err != nil {
				return nil, nil, err
			}
			if streams = append(streams, of...); dealt {
				break // there is one pipeline for all processes
			}
		}
	}
	at = p.in
	if !p.dealt {
		at = p.in[from*p.each() : to*p.each()]
	}
	if len(at) != len(streams) {
		return nil, nil, misfit("it has the positions of %d pipelines, the dataset has %d", len(at), len(streams))
	}
	s.most = s.mostRows(p, streams)
	return streams, at, nil
}

// modern converts a position saved by an earlier version of this package. With the policy Data,
// earlier versions saved one position per process, of its own shard of the stream. The position of
// the last process is at the end of the step, so it is the position of the shared stream.
func (d *DistributedDataset) modern(p position) (position, error) {
	if p.dealt || p.of.processes == 1 || d.policy != Data || !d.whole {
		return p, nil
	}
	last := p.in[len(p.in)-1]
	if err := last.want("shard", 1, 1); err != nil {
		return p, err
	}
	if p.first+p.count != p.of.processes || last.At[0]%int64(p.of.replicas) != 0 {
		return p, &errkind.Fault{Match: ErrState, Reason: fmt.Sprintf("it is of process %d of %v, as an earlier version saved it", p.first, p.of),
			Hint: "join the positions of all processes with JoinStates"}
	}
	p.dealt, p.in, p.first, p.count = true, last.In, 0, 1
	return p, nil
}

// recut converts the position of a pipeline that yields the parts of all replicas to the position
// of the same pipeline with the current number of replicas, after the same global batches. It
// returns false if the position cannot be converted.
func (d *DistributedDataset) recut(p position) (State, bool) {
	if !d.whole || p.of.replicas == d.opts.Replicas || !p.dealt && p.of.processes != 1 {
		return State{}, false
	}
	at := p.in[0]
	row, ended := int64(0), int64(0) // row of the current batch, with the rule Sizes
	switch {
	case p.of.replicas <= 1: // batches are not split for one replica
	case at.want("chunks", 1, 1) == nil && at.At[0] == 0:
		at = at.In[0]
	case at.want("sizes", 3, 1) == nil && (at.At[1] == 0 || at.At[2] != 0): // after a whole step, or all of them
		row, ended = at.At[0], at.At[2]
		at = at.In[0]
	default:
		return State{}, false
	}
	switch {
	case d.rule == Sizes:
		return State{Op: "sizes", At: []int64{row, 0, ended}, In: []State{at}}, true
	case row != 0:
		return State{}, false
	case d.rule == Chunks:
		return State{Op: "chunks", At: []int64{0}, In: []State{at}}, true
	}
	return at, true
}
