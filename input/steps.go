package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Step is the input of one training step: one element for each replica of this process, in the
// order of the replica ids.
type Step struct {
	Index    int64 // from 0
	Replicas []Element
	// HasData[i] is false if the data has ended for replica i, whose element then has 0 rows. It is
	// true for an empty part of a batch that has fewer rows than replicas.
	HasData []bool
}

// Steps is one pass over a distributed dataset, like TensorFlow's DistributedIterator. It is not
// safe for concurrent use.
type Steps struct {
	dataset      *DistributedDataset
	plan         readPlan
	streams      []Iterator
	ended        []bool
	parts        []Element // per-replica batches of the current step; hasData is false where there is none
	hasData      []bool
	maxRows      int     // largest number of rows of a replica, or Unknown
	firstElement Element // the first element; its spec is used for empty elements if the dataset's spec is unknown
	index        int64
	pass         uint64 // number of the pass of the DistributedDataset, from 0
	err          error  // if not nil, the result of all later calls of Next
}

// Open starts the next pass from its beginning. The first pass has the epoch [Options].Epoch.
func (d *DistributedDataset) Open(ctx context.Context) (*Steps, error) { return d.OpenAt(ctx, State{}) }

// OpenAt resumes a pass at a position saved with [Steps.State]. The following steps contain each
// element that was not used before exactly once. With the zero State it starts the next pass.
//
// If the saved run had other numbers of processes or replicas, pass the joined position of all its
// processes (see [JoinStates]). Otherwise each process may also pass its own position. The global
// batches are the same as without the interruption. If the number of replicas is unchanged, each
// replica also receives the same rows. Until the pass ends, the current processes divide the
// pipelines of the saved run among themselves. The next pass uses the new numbers.
//
// If the position does not fit the dataset, the error matches [ErrState].
func (d *DistributedDataset) OpenAt(ctx context.Context, state State) (*Steps, error) {
	s := &Steps{dataset: d, plan: d.defaultReadPlan(), maxRows: d.maxRows}
	streams, inner := d.streams, make([]State, len(d.streams))
	if state.IsZero() {
		s.pass = d.passes.Add(1) - 1
	} else {
		p, err := parsePosition(state)
		if err == nil {
			p, err = d.upgradePosition(p)
		}
		if err != nil {
			return nil, err
		}
		d.advancePass(p.pass)
		s.index, s.pass = p.index, p.pass
		if streams, inner, err = s.resumePipelines(p); err != nil {
			return nil, err
		}
	}
	s.ended = make([]bool, len(streams))
	for i, ds := range streams {
		it, err := ds.OpenAt(ctx, Pass{Epoch: d.opts.Epoch + s.pass}, inner[i])
		if err != nil {
			s.Close()
			return nil, err
		}
		s.streams = append(s.streams, it)
	}
	return s, nil
}

// advancePass increases the pass counter, so that the next call of Open starts a pass after the
// given pass.
func (d *DistributedDataset) advancePass(pass uint64) {
	for {
		n := d.passes.Load()
		if n > pass || d.passes.CompareAndSwap(n, pass+1) {
			return
		}
	}
}

// Next returns the next step, or io.EOF at the end. After io.EOF or another error, every later call
// returns the same error. Canceling ctx in the middle of a step loses the position: open the input
// again at the last saved position.
func (s *Steps) Next(ctx context.Context) (Step, error) {
	if s.err != nil {
		return Step{}, s.err
	}
	step, err := s.nextStep(ctx)
	if err != nil {
		s.err = err
		return Step{}, err
	}
	s.index++
	return step, nil
}

func (s *Steps) nextStep(ctx context.Context) (Step, error) {
	n := s.dataset.localReplicas
	step := Step{Index: s.index, Replicas: make([]Element, n), HasData: make([]bool, n)}
	if err := s.readParts(ctx); err != nil {
		return Step{}, err
	}
	if err := s.assignParts(&step); err != nil {
		return Step{}, err
	}
	more, err := s.hasNextStep(ctx, step)
	if err != nil {
		return Step{}, err
	}
	if !more {
		return Step{}, io.EOF
	}
	for r, real := range step.HasData {
		if real {
			continue
		}
		if step.Replicas[r], err = s.emptyElement(); err != nil {
			return Step{}, err
		}
	}
	return step, nil
}

// readParts reads one step's batch for each replica that the readPlan includes.
func (s *Steps) readParts(ctx context.Context) error {
	n, local := s.plan.numParts(), s.plan.job.localReplicas()
	if s.parts == nil {
		s.parts, s.hasData = make([]Element, n), make([]bool, n)
	}
	clear(s.parts)
	clear(s.hasData)
	each := len(s.streams)
	if !s.plan.isShared {
		each /= s.plan.endProcess - s.plan.firstProcess
	}
	for i := range n {
		index, stream := i, 0
		if s.plan.isShared {
			index = i%s.plan.job.processes*local + i/s.plan.job.processes
		} else {
			stream = i/local*each + i%local%each
		}
		if s.ended[stream] {
			continue
		}
		e, err := s.streams[stream].Next(ctx)
		if err == io.EOF {
			s.ended[stream] = true
			continue
		}
		if err == nil {
			err = s.checkFirstElement(e)
		}
		if err != nil {
			return err
		}
		s.parts[index], s.hasData[index] = e, true
	}
	return nil
}

// assignParts sets the elements of step for the replicas of this process. If the pass was saved
// with another number of replicas, it concatenates and splits the batches again.
func (s *Steps) assignParts(step *Step) error {
	first := s.plan.firstPart
	if s.plan.numChunks == 0 {
		if !s.plan.isShared {
			first -= s.plan.firstProcess * s.plan.job.localReplicas()
		}
		copy(step.Replicas, s.parts[first:])
		copy(step.HasData, s.hasData[first:])
		return nil
	}
	var elements []Element
	for i, e := range s.parts {
		if s.hasData[i] {
			elements = append(elements, e)
		}
	}
	if len(elements) == 0 {
		return nil
	}
	batch := elements[0]
	if len(elements) > 1 {
		var err error
		if batch, err = joinElements(elements, false); err != nil {
			return wrapError("split the batch again", "", err)
		}
	}
	for r := range step.Replicas {
		part, err := chunkAt(batch, s.plan.numChunks, first+r)
		if err != nil {
			return err
		}
		step.Replicas[r], step.HasData[r] = part, true
	}
	return nil
}

// checkFirstElement stores the first element. It returns an error if the dataset has no spec and is
// not known to be batched.
func (s *Steps) checkFirstElement(e Element) error {
	if !s.firstElement.IsZero() {
		return nil
	}
	s.firstElement = e
	if s.dataset.opts.Replicas == 1 || s.dataset.isBatched || !s.dataset.spec.IsZero() {
		return nil
	}
	leaves := e.Leaves()
	if len(leaves) == 0 {
		return nil
	}
	return notBatchedError(e.Paths()[0], leaves[0].Spec())
}

// hasNextStep reports whether there is another step. If processes can run out of data at different
// times, they agree on the result through Options.AnyProcess.
func (s *Steps) hasNextStep(ctx context.Context, step Step) (bool, error) {
	hasData := step.HasData
	if s.plan.readsAllPipelines || s.plan.numChunks > 0 {
		hasData = s.hasData // includes replicas of other processes
	}
	hasNext := slices.Contains(hasData, true)
	if s.dataset.needsAllReplicas {
		hasNext = !slices.Contains(hasData, false)
	}
	if s.plan.readsAllPipelines || !s.dataset.needsVote || s.dataset.opts.AnyProcess == nil {
		return hasNext, nil
	}
	// If a step needs data for all replicas, the vote is on whether any process lacks data.
	any, err := s.dataset.opts.AnyProcess(ctx, hasNext != s.dataset.needsAllReplicas)
	if err != nil {
		return false, &errkind.Fault{Op: "input: vote", Subject: fmt.Sprintf("on step %d", s.index), Err: err,
			Hint: "see why AnyProcess failed, and open the input again at the last saved position"}
	}
	return any != s.dataset.needsAllReplicas, nil
}

// emptyElement returns an element of 0 rows for a replica without data.
func (s *Steps) emptyElement() (Element, error) {
	if !s.dataset.spec.IsZero() {
		return emptyBatch(s.dataset.spec)
	}
	if s.firstElement.IsZero() {
		return Element{}, newFault(errkind.RuntimeError, "next step", "give the dataset a spec",
			"other processes have data for this step and this one has seen none, so it cannot tell the shape of an empty batch")
	}
	return emptyBatch(SpecOf(s.firstElement))
}

// State returns the position of this process before the next step. Use [JoinStates] to combine the
// positions of all processes into the position of the run. State returns an error after Next has
// returned an error other than io.EOF.
func (s *Steps) State() (State, error) {
	if s.err != nil && s.err != io.EOF {
		return State{}, noStateError(s.err)
	}
	p := position{index: s.index, job: s.plan.job, pass: s.pass, firstProcess: s.plan.firstProcess,
		numProcesses: s.plan.endProcess - s.plan.firstProcess, isShared: s.plan.isShared}
	if p.isShared {
		p.firstProcess, p.numProcesses = s.dataset.opts.Process, 1
		p.firstProcess = min(p.firstProcess, p.job.processes-1)
	}
	for _, it := range s.streams {
		inner, err := it.State()
		if err != nil {
			return State{}, err
		}
		p.streams = append(p.streams, inner)
	}
	return p.encode(), nil
}

// Close releases files and goroutines. A second call does nothing.
func (s *Steps) Close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, it := range s.streams {
		errs = append(errs, it.Close())
	}
	s.err = errClosed
	return errors.Join(errs...)
}
