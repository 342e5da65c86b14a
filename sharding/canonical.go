package sharding

import "slices"

// Canonical returns the sharding as XLA normalises it, so that shardings of one meaning become
// equal. A tensor in one tile becomes replicated. Subgroups of size 1 disappear; subgroups of one
// kind become one subgroup; the replicated subgroup comes last, with its devices in ascending
// order. A tensor with subgroups of one kind and no other split becomes a sharding of that kind.
// Where there are subgroups, the cost is proportional to the number of devices.
func (s OpSharding) Canonical() OpSharding {
	switch s.kind {
	case KindTuple:
		elements := make([]OpSharding, len(s.elements))
		for i, e := range s.elements {
			elements[i] = e.Canonical()
		}
		s.elements = elements
	case KindTiled:
		if !slices.ContainsFunc(s.tiles.dims, func(n int) bool { return n > 1 }) {
			return OpReplicated()
		}
		if len(s.subgroups) > 0 {
			return s.mergeSubgroups()
		}
	}
	return s
}

// mergeSubgroups is Canonical of several tiles with subgroups.
func (s OpSharding) mergeSubgroups() OpSharding {
	data := len(s.tiles.dims) - len(s.subgroups)
	// order are the dimensions as they are read: those of the tensor, then the subgroups by kind;
	// sizes are those of the kinds.
	order := make([]int, 0, len(s.tiles.dims))
	for i := range data {
		order = append(order, i)
	}
	kinds := slices.Compact(slices.SortedFunc(slices.Values(s.subgroups), func(a, b Kind) int { return a.rank() - b.rank() }))
	merged := OpSharding{kind: KindTiled, tiles: tiles{dims: slices.Clone(s.tiles.dims[:data])}}
	for _, kind := range kinds {
		size := 1
		for i, k := range s.subgroups {
			if k == kind {
				order = append(order, data+i)
				size *= s.tiles.dims[data+i]
			}
		}
		if size > 1 {
			merged.subgroups = append(merged.subgroups, kind)
			merged.tiles.dims = append(merged.tiles.dims, size)
		}
	}
	whole := !slices.ContainsFunc(s.tiles.dims[:data], func(n int) bool { return n > 1 })
	if whole && len(merged.subgroups) == 1 {
		switch merged.subgroups[0] {
		case KindReplicated:
			return OpReplicated()
		case KindManual:
			return OpManual()
		}
	}
	devices := permuted(s.tiles.expand(), s.tiles.dims, order)
	if n := len(merged.subgroups); n > 0 && merged.subgroups[n-1] == KindReplicated {
		for group := range slices.Chunk(devices, merged.tiles.dims[len(merged.tiles.dims)-1]) {
			slices.Sort(group)
		}
	}
	if slices.Equal(merged.tiles.dims, s.tiles.dims) && slices.Equal(merged.subgroups, s.subgroups) && slices.Equal(devices, s.tiles.expand()) {
		return s // also in how its devices are written
	}
	merged.tiles.devices = devices
	return merged
}

// rank puts the kinds of subgroups in XLA's order.
func (k Kind) rank() int {
	if k == KindReplicated {
		return int(KindUnreduced) + 1
	}
	return int(k)
}
