package mesh

import "slices"

// Processes says which process has which partition. The processes are those that have partitions,
// numbered without gaps. It is a value; the zero value is that of a machine that is only described,
// of which no process has a part.
type Processes struct {
	// Process is this process's number, and Count the number of processes.
	Process, Count int
	// Of is each partition's process, and Local says which are this one's.
	Of    []int
	Local []bool
	// Groups are the groups with a partition of this process, ascending.
	Groups []int

	mine []int // this process's partitions, ascending
}

// NewProcesses numbers the tasks that have the partitions, in groups of a size. ok is false if mine,
// this process's task, has none.
func NewProcesses(tasks []int, mine, group int) (h Processes, ok bool) {
	sorted := slices.Compact(slices.Sorted(slices.Values(tasks)))
	h.Count = len(sorted)
	h.Process, ok = slices.BinarySearch(sorted, mine)
	h.Of, h.Local = make([]int, len(tasks)), make([]bool, len(tasks))
	for d, task := range tasks {
		h.Of[d], _ = slices.BinarySearch(sorted, task)
		if h.Local[d] = ok && h.Of[d] == h.Process; h.Local[d] {
			h.Groups, h.mine = append(h.Groups, d/group), append(h.mine, d)
		}
	}
	h.Groups = slices.Compact(h.Groups)
	return h, ok
}

// Several reports whether there are processes besides this one.
func (h *Processes) Several() bool { return h.Count > 1 }

// NumLocal returns the number of this process's partitions.
func (h *Processes) NumLocal() int { return len(h.mine) }

// Sources returns from which of this process's partitions the tensor of a group can be read: the
// first that holds each part. held says which partitions hold theirs; nil is all. A tensor that all
// groups hold alike may come from any, and one that is cut over the groups needs all of them. If parts
// are missing here, missing is the first device of the group that holds one, and ok is false.
func (h *Processes) Sources(l *Layout, group int, held func(partition int) bool, alike bool) (from []int, missing int, ok bool) {
	has := func(d int) bool { return h.Local[d] && (held == nil || held(d)) }
	groups := []int{group}
	if l.IsCut() {
		groups = groups[:0]
		for g := range len(h.Of) / l.group {
			groups = append(groups, g)
		}
	}
	for _, g := range groups {
		found := make([]bool, l.group) // by the first device that holds the part
		for p := range l.group {
			first := l.First(p)
			if found[first] {
				continue
			}
			d := g*l.group + p
			if !has(d) && alike && !l.IsCut() {
				for _, other := range h.groupsOf(l) {
					if other := other*l.group + p; has(other) {
						d = other
						break
					}
				}
			}
			if has(d) {
				from, found[first] = append(from, d), true
			}
		}
		for p := range l.group {
			if !found[l.First(p)] {
				return nil, g*l.group + p, false
			}
		}
	}
	return from, 0, true
}

// Everywhere reports whether every process can read a tensor that all groups hold alike from its own
// partitions. It is the same on all processes.
func (h *Processes) Everywhere(l *Layout) bool {
	parts, has := map[int]bool{}, map[[2]int]bool{} // by the first device that holds the part
	for d, process := range h.Of {
		part := l.First(d % l.group)
		parts[part], has[[2]int{process, part}] = true, true
	}
	return len(has) == h.Count*len(parts)
}

// groupsOf are the groups of a layout with a partition of this process.
func (h *Processes) groupsOf(l *Layout) (groups []int) {
	for _, d := range h.mine {
		groups = append(groups, d/l.group)
	}
	return slices.Compact(groups)
}
