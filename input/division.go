package input

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// A run divides its data by the number of its replicas and of its processes: each process has
// pipelines of its own, whose order, shuffles and shares no other division has. So that a run can
// go on with other numbers and yet use each example once, it keeps the division that it began its
// pass with: the pipelines of that division are dealt to the processes that there are now, and what
// they yield for a step is the step's, cut anew where the number of replicas differs.

// division says by how many replicas and processes a run divides its data.
type division struct{ replicas, processes int }

// local is the number of replicas of a process.
func (d division) local() int { return d.replicas / d.processes }

// portion is what a process reads of a division, which may be another number's of processes and
// replicas, and what it does with it.
type portion struct {
	of division
	// from and to are the division's processes whose pipelines are read; all of them share one
	// pipeline where its parts are dealt.
	from, to int
	dealt    bool
	// first is the replica of the division whose part is the first of this process's. Where the
	// parts are cut anew it is the first of this process's replicas among those that cut are: the
	// replicas of what is read.
	first, cut int
	// whole says that every process reads all pipelines, so that none needs to ask another how they
	// end.
	whole bool
}

// parts is the number of parts that are read for a step.
func (s portion) parts() int {
	if s.dealt {
		return s.of.replicas
	}
	return (s.to - s.from) * s.of.local()
}

// natural is the portion of a run that divides its data as this one does.
func (d *DistributedDataset) natural() portion {
	p := d.opts.Process
	return portion{of: division{d.opts.Replicas, d.opts.Processes}, from: p, to: p + 1, dealt: d.dealt, first: p * d.local}
}

// portionOf returns what this process reads of a run that began its pass with another division.
func (d *DistributedDataset) portionOf(of division, dealt bool) portion {
	here := division{d.opts.Replicas, d.opts.Processes}
	if of == here && dealt == d.dealt {
		return d.natural()
	}
	p := d.opts.Process
	s := portion{of: of, to: of.processes, dealt: dealt, first: p * d.local, whole: true}
	switch {
	case of.replicas != here.replicas:
		// Groups of processes share the pipelines out, if a group's rows fit its replicas.
		groups := gcd(of.processes, here.processes)
		if dealt || d.whole && (d.global < 1 || d.global%of.replicas != 0) {
			groups = 1
		}
		group := p / (here.processes / groups)
		s.from, s.to = group*of.processes/groups, (group+1)*of.processes/groups
		s.cut = here.replicas / groups
		s.first = p*d.local - group*s.cut
		s.whole = groups == 1
	case !dealt: // each replica goes on with its own part
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

// MaxRows returns the largest number of rows that a replica gets in a step of this pass, as
// [DistributedDataset.MaxRows] does. It differs where the pass goes on from a position of another
// number of replicas whose parts did not make up global batches: those of [FromFunction], and
// uneven chunks that each process cut.
func (s *Steps) MaxRows() int { return s.most }

// mostRows is MaxRows of a pass that goes on from a position, over the streams of its division.
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

// dealtOp marks the position of a pipeline whose parts are dealt to all processes.
const dealtOp = "dealt"

// position is a position of [Steps], taken apart.
type position struct {
	index int64
	of    division
	pass  uint64
	// first is the first process of the division whose pipelines are in it, and count the number
	// of these processes.
	first, count int
	dealt        bool
	in           []State // of the streams, equally many for each process
}

// each is the number of streams of a process.
func (p position) each() int { return len(p.in) / p.count }

// parsePosition takes a position apart.
func parsePosition(from State) (p position, err error) {
	counters := min(max(len(from.At), 4), 6) // the pass and the count are left out where they are 0 and 1
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

// state puts a position together.
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

// JoinStates makes one position of those that all processes have after the same step, in any order:
// the position of the whole run. [DistributedDataset.OpenAt] goes on from it with any number of
// processes and replicas. The position of a process alone is that of the whole run as it is. Its
// errors match [ErrState]: a process is missing, or another is at another step.
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
	if all.dealt { // each process has the position of all
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

// SameStep reports whether two positions of [Steps] are after the same step of the same pass:
// positions of processes of one run, or of a run that goes on with other numbers of them.
func SameStep(a, b State) bool {
	p, err := parsePosition(a)
	q, err2 := parsePosition(b)
	return err == nil && err2 == nil && p.index == q.index && p.pass == q.pass
}

// String prints the numbers.
func (d division) String() string {
	return fmt.Sprintf("%d replicas on %d processes", d.replicas, d.processes)
}
