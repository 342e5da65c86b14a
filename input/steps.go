package input

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Step is the input of one step: one element for each replica of this process, in the order of the
// replicas' ids.
type Step struct {
	Index    int64 // from 0
	Replicas []Element
	// Real is true for the replicas that have data of the dataset. The other replicas have elements
	// of no rows, because the data has ended. An empty share of a real batch counts as data.
	Real []bool
}

// Steps is one pass over distributed input: TensorFlow's DistributedIterator. One goroutine uses it
// at a time.
type Steps struct {
	d       *Distributed
	streams []Iterator
	ended   []bool
	seen    Element // a real element, the model for stand-ins where no spec is known
	index   int64
	pass    uint64 // of the Distributed, from 0
	err     error  // what Next returns from now on
}

// Open starts the next pass from its beginning. The first pass is that of [Options].Epoch.
func (d *Distributed) Open(ctx context.Context) (*Steps, error) { return d.OpenAt(ctx, State{}) }

// OpenAt starts a pass at a position saved with [Steps.State], and yields the steps that followed
// it. The process and the number of processes must be the same. On a single process the number of
// replicas may differ, for input made by [Distribute]: the same global batches follow. Errors of
// positions that do not fit match [ErrState].
func (d *Distributed) OpenAt(ctx context.Context, from State) (*Steps, error) {
	s := &Steps{d: d, ended: make([]bool, len(d.streams))}
	inner := make([]State, len(d.streams))
	if from.IsZero() {
		s.pass = d.passes.Add(1) - 1
	} else {
		// Positions of the first pass do not name it.
		counters := 4
		if len(from.At) == 5 {
			counters = 5
		}
		if err := from.want("steps", counters, len(d.streams)); err != nil {
			return nil, err
		}
		if counters == 5 {
			if from.At[4] < 0 {
				return nil, misfit("pass %d", from.At[4])
			}
			s.pass = uint64(from.At[4])
		}
		d.passed(s.pass)
		s.index, inner = from.At[0], from.In
		if from.At[1] != int64(d.opts.Replicas) || from.At[2] != int64(d.opts.Processes) || from.At[3] != int64(d.opts.Process) {
			global, ok := d.recut(from)
			if !ok {
				return nil, &errkind.Fault{Match: ErrState,
					Reason: fmt.Sprintf("it is of process %d of %d with %d replicas, this is process %d of %d with %d",
						from.At[3], from.At[2], from.At[1], d.opts.Process, d.opts.Processes, d.opts.Replicas),
					Hint: fmt.Sprintf("leave out the batches before step %d with Skip, or go on with as many processes and replicas", from.At[0])}
			}
			inner = []State{global}
		}
	}
	for i, ds := range d.streams {
		it, err := ds.OpenAt(ctx, Pass{Epoch: d.opts.Epoch + s.pass}, inner[i])
		if err != nil {
			s.Close()
			return nil, err
		}
		s.streams = append(s.streams, it)
	}
	return s, nil
}

// passed counts a pass that is gone on with, so that the next one to open is another.
func (d *Distributed) passed(pass uint64) {
	for {
		n := d.passes.Load()
		if n > pass || d.passes.CompareAndSwap(n, pass+1) {
			return
		}
	}
}

// recut turns a position between steps on one process into that of as many global batches cut for
// this number of replicas.
func (d *Distributed) recut(from State) (State, bool) {
	if !d.whole || d.opts.Processes != 1 || from.At[2] != 1 || from.At[3] != 0 {
		return State{}, false
	}
	at := from.In[0]
	row, ended := int64(0), int64(0) // of the batch under way, where rows are cut as a stream
	switch {
	case from.At[1] <= 1: // nothing is cut for one replica
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

// Next returns the next step, or io.EOF at the end. After io.EOF or another error, every later call
// returns the same error. Cancelling ctx in the middle of a step loses the position: open the input
// again at the last saved position.
func (s *Steps) Next(ctx context.Context) (Step, error) {
	if s.err != nil {
		return Step{}, s.err
	}
	step, err := s.next(ctx)
	if err != nil {
		s.err = err
		return Step{}, err
	}
	s.index++
	return step, nil
}

func (s *Steps) next(ctx context.Context) (Step, error) {
	n := s.d.local
	step := Step{Index: s.index, Replicas: make([]Element, n), Real: make([]bool, n)}
	have := 0
	for r := range n {
		which := r % len(s.streams)
		if s.ended[which] {
			continue
		}
		e, err := s.streams[which].Next(ctx)
		if err == io.EOF {
			s.ended[which] = true
			continue
		}
		if err != nil {
			return Step{}, err
		}
		if err := s.accept(e); err != nil {
			return Step{}, err
		}
		step.Replicas[r], step.Real[r] = e, true
		have++
	}
	more, err := s.more(ctx, have)
	if err != nil {
		return Step{}, err
	}
	if !more {
		return Step{}, io.EOF
	}
	for r, real := range step.Real {
		if real {
			continue
		}
		if step.Replicas[r], err = s.standIn(); err != nil {
			return Step{}, err
		}
	}
	return step, nil
}

// accept checks the first element of a dataset without a spec.
func (s *Steps) accept(e Element) error {
	if !s.seen.IsZero() {
		return nil
	}
	s.seen = e
	if s.d.opts.Replicas == 1 || s.d.batched || !s.d.spec.IsZero() {
		return nil
	}
	leaves := e.Leaves()
	if len(leaves) == 0 {
		return nil
	}
	return &NotBatchedError{Component: e.Paths()[0], Spec: leaves[0].Spec()}
}

// more decides whether there is a step, on this process or with all others.
func (s *Steps) more(ctx context.Context, have int) (bool, error) {
	mine := have > 0
	if s.d.full {
		mine = have == s.d.local
	}
	if !s.d.vote || s.d.opts.AnyProcess == nil {
		return mine, nil
	}
	// Where every replica needs data, the question is whether any process lacks it.
	any, err := s.d.opts.AnyProcess(ctx, mine != s.d.full)
	if err != nil {
		return false, &errkind.Fault{Op: "input: vote", Subject: fmt.Sprintf("on step %d", s.index), Err: err,
			Hint: "see why AnyProcess failed, and open the input again at the last saved position"}
	}
	return any != s.d.full, nil
}

// standIn is an element of no rows.
func (s *Steps) standIn() (Element, error) {
	if !s.d.spec.IsZero() {
		return dummy(s.d.spec)
	}
	if s.seen.IsZero() {
		return Element{}, fault(errkind.RuntimeError, "next step", "give the dataset a spec",
			"other processes have data for this step and this one has seen none, so it cannot tell the shape of an empty batch")
	}
	return dummy(SpecOf(s.seen))
}

// State returns the position before the next step. It fails after an error of Next other than
// io.EOF.
func (s *Steps) State() (State, error) {
	if s.err != nil && s.err != io.EOF {
		return State{}, noPosition(s.err)
	}
	o := s.d.opts
	state := State{Op: "steps", At: []int64{s.index, int64(o.Replicas), int64(o.Processes), int64(o.Process)}}
	if s.pass > 0 {
		state.At = append(state.At, int64(s.pass))
	}
	for _, it := range s.streams {
		inner, err := it.State()
		if err != nil {
			return State{}, err
		}
		state.In = append(state.In, inner)
	}
	return state, nil
}

// Close releases files and goroutines. A second call does nothing.
func (s *Steps) Close() error {
	var errs []error
	for _, it := range s.streams {
		errs = append(errs, it.Close())
	}
	s.err = errClosed
	return errors.Join(errs...)
}

func (s *Steps) each(ctx context.Context, yield func(Step, error) bool) {
	for {
		step, err := s.Next(ctx)
		if err == io.EOF || !yield(step, err) || err != nil {
			return
		}
	}
}
