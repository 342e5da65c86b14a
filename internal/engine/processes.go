package engine

import "slices"

// Processes records which process of a job owns each device. Devices are identified by their
// partition number. Processes without a partition are ignored, and the others are numbered without
// gaps. The zero value is for a runtime without devices.
type Processes struct {
	// Process is the index of this process. Count is the number of processes.
	Process, Count int
	// Of is the process of each partition. Local is whether each partition belongs to this process.
	Of    []int
	Local []bool
	// Groups are the groups with a partition of this process, in ascending order.
	Groups []int

	localPartitions []int // the partitions of this process, in ascending order
}

// NewProcesses returns the Processes of a job. tasks contains the task number of each partition,
// mine is the task number of this process, and group is the number of partitions per group. ok is
// false if this process has no partition.
func NewProcesses(tasks []int, mine, group int) (h Processes, ok bool) {
	sorted := slices.Compact(slices.Sorted(slices.Values(tasks)))
	h.Count = len(sorted)
	h.Process, ok = slices.BinarySearch(sorted, mine)
	h.Of, h.Local = make([]int, len(tasks)), make([]bool, len(tasks))
	for d, task := range tasks {
		h.Of[d], _ = slices.BinarySearch(sorted, task)
		if h.Local[d] = ok && h.Of[d] == h.Process; h.Local[d] {
			h.Groups, h.localPartitions = append(h.Groups, d/group), append(h.localPartitions, d)
		}
	}
	h.Groups = slices.Compact(h.Groups)
	return h, ok
}

// IsMultiProcess reports whether there is more than one process.
func (h *Processes) IsMultiProcess() bool { return h.Count > 1 }

// NumLocal returns the number of partitions of this process.
func (h *Processes) NumLocal() int { return len(h.localPartitions) }

// Sources returns the partitions of this process from which a group's tensor can be read: for each
// shard, the first partition that has it. If the tensor is split over the groups, Sources returns
// partitions of all groups. The function held reports whether a partition has its shard; nil means
// that all partitions have their shards. If alike is true, all groups have the same tensor, and
// Sources may return partitions of any group. If this process lacks a shard, ok is false, and
// missing is the first device of the group with this shard.
func (h *Processes) Sources(l *Layout, group int, held func(partition int) bool, alike bool) (from []int,
	missing int, ok bool) {
	has := func(d int) bool { return h.Local[d] && (held == nil || held(d)) }
	groups := []int{group}
	if l.IsSplitOverGroups() {
		groups = groups[:0]
		for g := range len(h.Of) / l.group {
			groups = append(groups, g)
		}
	}
	for _, g := range groups {
		found := make([]bool, l.group) // by the first device with the shard
		for p := range l.group {
			first := l.FirstPartition(p)
			if found[first] {
				continue
			}
			d := g*l.group + p
			if !has(d) && alike && !l.IsSplitOverGroups() {
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
			if !found[l.FirstPartition(p)] {
				return nil, g*l.group + p, false
			}
		}
	}
	return from, 0, true
}

// IsReadableEverywhere reports whether every process can read the complete tensor from its own
// devices. The tensor must be the same in all groups. The result is equal on all processes.
func (h *Processes) IsReadableEverywhere(l *Layout) bool {
	parts, has := map[int]bool{}, map[[2]int]bool{} // by the first device with the shard
	for d, process := range h.Of {
		part := l.FirstPartition(d % l.group)
		parts[part], has[[2]int{process, part}] = true, true
	}
	return len(has) == h.Count*len(parts)
}

// groupsOf returns the groups of a layout that have a partition of this process.
func (h *Processes) groupsOf(l *Layout) (groups []int) {
	for _, d := range h.localPartitions {
		groups = append(groups, d/l.group)
	}
	return slices.Compact(groups)
}
