package input

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// The pipelines of a run depend on its division: the numbers of replicas and processes determine
// their order, shuffles and shares. If a run resumes in the middle of a pass with other numbers, it
// must still use each example once. It therefore keeps the division with which the pass began until
// the pass ends. The current processes divide the pipelines of that division among themselves, and
// re-split each step's parts if the number of replicas differs.

// division is the number of replicas and processes by which a run divides its data.
type division struct{ replicas, processes int }

// local returns the number of replicas of each process.
func (d division) local() int { return d.replicas / d.processes }

// portion specifies which pipelines of a division this process reads and which parts it uses. The
// division may differ from the current numbers of processes and replicas.
type portion struct {
	of division
	// The pipelines of the division's processes from (inclusive) to to (exclusive) are read. With
	// dealt, there is one pipeline with the parts of all processes.
	from, to int
	dealt    bool
	// first is the index of the first part that belongs to this process. If cut is 0, it counts the
	// replicas of the division. Otherwise the parts that are read are joined and re-split into cut
	// chunks, and first counts these chunks.
	first, cut int
	// whole is true if every process reads all pipelines, so that the processes need no vote on the
	// end of the data.
	whole bool
}

// parts returns the number of parts that are read for each step.
func (s portion) parts() int {
	if s.dealt {
		return s.of.replicas
	}
	return (s.to - s.from) * s.of.local()
}

// natural returns this process's portion of a pass with the current division.
func (d *DistributedDataset) natural() portion {
	p := d.opts.Process
	return portion{of: division{d.opts.Replicas, d.opts.Processes}, from: p, to: p + 1, dealt: d.dealt, first: p * d.local}
}

// portionOf returns this process's portion of a pass that began with the division of.
func (d *DistributedDataset) portionOf(of division, dealt bool) portion {
	here := division{d.opts.Replicas, d.opts.Processes}
	if of == here && dealt == d.dealt {
		return d.natural()
	}
	p := d.opts.Process
	s := portion{of: of, to: of.processes, dealt: dealt, first: p * d.local, whole: true}
	switch {
	case of.replicas != here.replicas:
		// Groups of processes divide the pipelines, if the rows of a group match its replicas.
		groups := gcd(of.processes, here.processes)
		if dealt || d.whole && (d.global < 1 || d.global%of.replicas != 0) {
			groups = 1
		}
		group := p / (here.processes / groups)
		s.from, s.to = group*of.processes/groups, (group+1)*of.processes/groups
		s.cut = here.replicas / groups
		s.first = p*d.local - group*s.cut
		s.whole = groups == 1
	case !dealt: // each replica continues with its own part
		s.from = s.first / of.local()
		s.to = (s.first+d.local-1)/of.local() + 1
		s.whole = here.processes == 1 || of.processes == 1
	}
	return s
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// MaxRows returns the largest number of rows of a replica in a step of this pass, or Unknown. It
// differs from [DistributedDataset.MaxRows] only if the pass resumes from a position with another
// number of replicas and the parts of a step do not form one global batch. That is the case with
// [FromFunction] and with uneven chunks that each process splits separately.
func (s *Steps) MaxRows() int { return s.most }

// mostRows returns MaxRows for a pass that resumes at p. streams are the streams of the position's
// division.
func (s *Steps) mostRows(p position, streams []Dataset) int {
	rows := rowsOfPart(streams[0].Info())
	if s.d.whole {
		if p.dealt || p.of.processes == 1 || p.in[0].Op != "chunks" {
			return s.d.rows
		}
		rows = (s.d.global + p.of.replicas - 1) / p.of.replicas
	}
	if s.portion.cut == 0 || rows < 1 {
		return s.d.rows
	}
	return (rows*p.of.replicas + s.d.opts.Replicas - 1) / s.d.opts.Replicas
}

// dealtOp is the Op of the position of a pipeline that yields the parts of all processes.
const dealtOp = "dealt"

// position is the decoded State of [Steps].
type position struct {
	index int64
	of    division
	pass  uint64
	// in contains the positions of the pipelines of count processes of the division, beginning with
	// process first.
	first, count int
	dealt        bool
	in           []State // positions of the streams, the same number for each process
}

// each returns the number of streams of one process.
func (p position) each() int { return len(p.in) / p.count }

// parsePosition decodes the State of [Steps]. Its errors match ErrState.
func parsePosition(from State) (p position, err error) {
	counters := min(max(len(from.At), 4), 6) // pass and count are omitted if they are 0 and 1
	if err := from.want("steps", counters, len(from.In)); err != nil {
		return p, err
	}
	at := from.At
	p = position{index: at[0], of: division{int(at[1]), int(at[2])}, first: int(at[3]), count: 1, in: from.In}
	if counters > 4 {
		p.pass = uint64(at[4])
	}
	if counters > 5 {
		p.count = int(at[5])
	}
	const most = 1 << 24
	if p.of.processes < 1 || p.of.replicas < p.of.processes || p.of.replicas%p.of.processes != 0 || p.of.replicas > most ||
		p.count < 1 || p.first > p.of.processes-p.count || len(p.in) == 0 || len(p.in)%p.count != 0 {
		return p, misfit("it is of %d processes from process %d on, of %v, and has the positions of %d pipelines", p.count, p.first, p.of, len(p.in))
	}
	if p.dealt = p.in[0].Op == dealtOp; p.dealt {
		if err := p.in[0].want(dealtOp, 0, 1); err != nil {
			return p, err
		}
		p.in = p.in[0].In
	}
	return p, nil
}

// state encodes a position.
func (p position) state() State {
	s := State{Op: "steps", At: []int64{p.index, int64(p.of.replicas), int64(p.of.processes), int64(p.first)}, In: p.in}
	if p.pass > 0 || p.count > 1 {
		s.At = append(s.At, int64(p.pass))
	}
	if p.count > 1 {
		s.At = append(s.At, int64(p.count))
	}
	if p.dealt {
		s.In = []State{{Op: dealtOp, In: p.in}}
	}
	return s
}

// JoinStates merges the positions of all processes after the same step into the position of the
// whole run. The order of states does not matter. [DistributedDataset.OpenAt] resumes from the
// result with any number of processes and replicas. A run with a single process needs no join. If a
// process is missing or the positions are after different steps, the error matches [ErrState].
func JoinStates(states []State) (State, error) {
	if len(states) == 0 {
		return State{}, nil
	}
	all, err := parsePosition(states[0])
	if err != nil {
		return State{}, err
	}
	have := make([]bool, all.of.processes)
	in := make([]State, all.of.processes*all.each())
	for _, s := range states {
		p, err := parsePosition(s)
		if err != nil {
			return State{}, err
		}
		if p.index != all.index || p.of != all.of || p.pass != all.pass || p.dealt != all.dealt || p.each() != all.each() {
			return State{}, &errkind.Fault{Match: ErrState, Reason: fmt.Sprintf("one process is after step %d of pass %d of %v, another after step %d of pass %d of %v",
				all.index, all.pass, all.of, p.index, p.pass, p.of), Hint: "join the positions that all processes have after the same step"}
		}
		copy(in[p.first*p.each():], p.in)
		for v := range p.count {
			have[p.first+v] = true
		}
	}
	if all.dealt { // each process has the position of the shared pipeline
		all.first = 0
		return all.state(), nil
	}
	if missing := slices.Index(have, false); missing >= 0 {
		return State{}, &errkind.Fault{Match: ErrState, Reason: fmt.Sprintf("the position of process %d of %v is missing", missing, all.of),
			Hint: "join the positions that all processes have after the same step"}
	}
	all.first, all.count, all.in = 0, all.of.processes, in
	return all.state(), nil
}

// SameStep reports whether two positions of [Steps] are after the same step of the same pass. The
// positions may belong to different numbers of processes and replicas.
func SameStep(a, b State) bool {
	p, err := parsePosition(a)
	q, err2 := parsePosition(b)
	return err == nil && err2 == nil && p.index == q.index && p.pass == q.pass
}

func (d division) String() string {
	return fmt.Sprintf("%d replicas on %d processes", d.replicas, d.processes)
}
