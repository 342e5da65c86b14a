package input

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/chunk"
)

// The pipelines of a run depend on its numbers of replicas and processes, which determine their
// order, shuffles and shares. If a run resumes in the middle of a pass with other numbers, it must
// still use each example once. It therefore keeps the job size with which the pass began until the
// pass ends. The current processes divide the pipelines of that job among themselves, and
// re-split each step's parts if the number of replicas differs.

// jobSize is the number of replicas and processes of a run, which determines how data is divided.
type jobSize struct{ replicas, processes int }

func (d jobSize) localReplicas() int { return d.replicas / d.processes }

// readPlan specifies the pipelines that this process reads, and which of their batches it uses. In
// a resumed pass, job contains the numbers of processes and replicas with which the pass began.
type readPlan struct {
	job jobSize
	// This process reads the pipelines of the job's processes firstProcess to endProcess-1. If
	// isShared is true, there is one pipeline with the batches of all processes.
	firstProcess, endProcess int
	isShared                 bool
	// firstPart is the index of the first part that belongs to this process. If numChunks is 0, it
	// is the index of a replica of the job. Otherwise the parts of a step are concatenated and
	// split again into numChunks chunks, and firstPart is the index of a chunk.
	firstPart, numChunks int
	// readsAllPipelines is true if every process reads all pipelines. The processes then need no
	// vote on the end of the data.
	readsAllPipelines bool
}

// numParts returns the number of per-replica batches that this process reads for each step.
func (s readPlan) numParts() int {
	if s.isShared {
		return s.job.replicas
	}
	return (s.endProcess - s.firstProcess) * s.job.localReplicas()
}

// defaultReadPlan returns this process's readPlan for a pass that began with the current numbers of
// replicas and processes.
func (d *DistributedDataset) defaultReadPlan() readPlan {
	p := d.opts.Process
	return readPlan{job: jobSize{d.opts.Replicas, d.opts.Processes}, firstProcess: p, endProcess: p + 1,
		isShared: d.isShared, firstPart: p * d.localReplicas}
}

// readPlanFor returns this process's readPlan for a pass that began with the numbers of replicas
// and processes of job.
func (d *DistributedDataset) readPlanFor(job jobSize, isShared bool) readPlan {
	current := jobSize{d.opts.Replicas, d.opts.Processes}
	if job == current && isShared == d.isShared {
		return d.defaultReadPlan()
	}
	p := d.opts.Process
	s := readPlan{job: job, endProcess: job.processes, isShared: isShared, firstPart: p * d.localReplicas,
		readsAllPipelines: true}
	switch {
	case job.replicas != current.replicas:
		// Groups of processes divide the pipelines, if the rows of a group match its replicas.
		groups := gcd(job.processes, current.processes)
		if isShared || d.splitsGlobalBatch && (d.globalBatch < 1 || d.globalBatch%job.replicas != 0) {
			groups = 1
		}
		group := p / (current.processes / groups)
		s.firstProcess, s.endProcess = group*job.processes/groups, (group+1)*job.processes/groups
		s.numChunks = current.replicas / groups
		s.firstPart = p*d.localReplicas - group*s.numChunks
		s.readsAllPipelines = groups == 1
	case !isShared: // each replica continues with its own part
		s.firstProcess = s.firstPart / job.localReplicas()
		s.endProcess = (s.firstPart+d.localReplicas-1)/job.localReplicas() + 1
		s.readsAllPipelines = current.processes == 1 || job.processes == 1
	}
	return s
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// MaxRows returns the largest number of rows of a replica in a step of this pass, or Unknown. The
// result can differ from [DistributedDataset.MaxRows] only if this pass resumes from a position
// that was saved with another number of replicas. It then differs only for a dataset of
// [FromFunction], and for a dataset whose batches each process splits on its own into parts of
// unequal size.
func (s *Steps) MaxRows() int { return s.maxRows }

// maxRowsAt returns the result of MaxRows for a pass that resumes at p. streams are the pipelines
// of the saved run.
func (s *Steps) maxRowsAt(p position, streams []Dataset) int {
	rows := maxPartRows(streams[0].Info())
	if s.dataset.splitsGlobalBatch {
		if p.isShared || p.job.processes == 1 || splitterOf(p.streams[0]).sharesBatch {
			return s.dataset.maxRows
		}
		_, rows = chunk.Range(s.dataset.globalBatch, p.job.replicas, 0)
	}
	if s.plan.numChunks == 0 || rows < 1 {
		return s.dataset.maxRows
	}
	return (rows*p.job.replicas + s.dataset.opts.Replicas - 1) / s.dataset.opts.Replicas
}

// sharedOp is the State.Op of a pipeline that yields the batches of all processes.
const sharedOp = "dealt"

// position is the decoded State of [Steps].
type position struct {
	index int64
	job   jobSize
	pass  uint64
	// firstProcess and numProcesses are the range of processes of the job whose streams are stored.
	firstProcess, numProcesses int
	isShared                   bool
	streams                    []State // positions of the streams, the same number for each process
}

// streamsPerProcess returns the number of input pipelines of each process in the position.
func (p position) streamsPerProcess() int { return len(p.streams) / p.numProcesses }

// parsePosition decodes the State of [Steps]. Its errors match ErrState.
func parsePosition(state State) (p position, err error) {
	numCounters := min(max(len(state.Counters), 4), 6) // pass and count are omitted if they are 0 and 1
	if err := state.validate("steps", numCounters, len(state.Inputs)); err != nil {
		return p, err
	}
	c := state.Counters
	p = position{index: c[0], job: jobSize{int(c[1]), int(c[2])}, firstProcess: int(c[3]), numProcesses: 1,
		streams: state.Inputs}
	if numCounters > 4 {
		p.pass = uint64(c[4])
	}
	if numCounters > 5 {
		p.numProcesses = int(c[5])
	}
	const most = 1 << 24
	if p.job.processes < 1 || p.job.replicas < p.job.processes || p.job.replicas%p.job.processes != 0 ||
		p.job.replicas > most ||
		p.numProcesses < 1 || p.firstProcess > p.job.processes-p.numProcesses || len(p.streams) == 0 ||
		len(p.streams)%p.numProcesses != 0 {
		return p, stateError("it is of %d processes from process %d on, of %v, and has the positions of %d pipelines",
			p.numProcesses, p.firstProcess, p.job, len(p.streams))
	}
	if p.isShared = p.streams[0].Op == sharedOp; p.isShared {
		if err := p.streams[0].validate(sharedOp, 0, 1); err != nil {
			return p, err
		}
		p.streams = p.streams[0].Inputs
	}
	return p, nil
}

func (p position) encode() State {
	s := State{Op: "steps", Counters: []int64{p.index, int64(p.job.replicas), int64(p.job.processes),
		int64(p.firstProcess)}, Inputs: p.streams}
	if p.pass > 0 || p.numProcesses > 1 {
		s.Counters = append(s.Counters, int64(p.pass))
	}
	if p.numProcesses > 1 {
		s.Counters = append(s.Counters, int64(p.numProcesses))
	}
	if p.isShared {
		s.Inputs = []State{{Op: sharedOp, Inputs: p.streams}}
	}
	return s
}

// JoinStates merges the positions of all processes after the same step into the position of the
// run. The order of states does not matter. [DistributedDataset.OpenAt] resumes from the result
// with any number of processes and replicas. A run with a single process needs no join. If a
// process is missing or the positions are after different steps, the error matches [ErrState].
func JoinStates(states []State) (State, error) {
	if len(states) == 0 {
		return State{}, nil
	}
	all, err := parsePosition(states[0])
	if err != nil {
		return State{}, err
	}
	found := make([]bool, all.job.processes)
	streams := make([]State, all.job.processes*all.streamsPerProcess())
	for _, s := range states {
		p, err := parsePosition(s)
		if err != nil {
			return State{}, err
		}
		if p.index != all.index || p.job != all.job || p.pass != all.pass || p.isShared != all.isShared ||
			p.streamsPerProcess() != all.streamsPerProcess() {
			return State{}, &errkind.Fault{Match: ErrState,
				Reason: fmt.Sprintf("one process is after step %d of pass %d of %v, another after step %d of pass %d of %v",
					all.index, all.pass, all.job, p.index, p.pass, p.job),
				Hint: "join the positions that all processes have after the same step"}
		}
		copy(streams[p.firstProcess*p.streamsPerProcess():], p.streams)
		for v := range p.numProcesses {
			found[p.firstProcess+v] = true
		}
	}
	if all.isShared { // each process has the position of the shared pipeline
		all.firstProcess = 0
		return all.encode(), nil
	}
	if missing := slices.Index(found, false); missing >= 0 {
		return State{}, &errkind.Fault{Match: ErrState, Reason: fmt.Sprintf("the position of process %d of %v is missing",
			missing, all.job),
			Hint: "join the positions that all processes have after the same step"}
	}
	all.firstProcess, all.numProcesses, all.streams = 0, all.job.processes, streams
	return all.encode(), nil
}

// SameStep reports whether two positions of [Steps] are after the same step of the same pass. The
// positions may belong to runs with different numbers of processes and replicas.
func SameStep(a, b State) bool {
	p, err := parsePosition(a)
	q, err2 := parsePosition(b)
	return err == nil && err2 == nil && p.index == q.index && p.pass == q.pass
}

func (d jobSize) String() string {
	return fmt.Sprintf("%d replicas on %d processes", d.replicas, d.processes)
}
