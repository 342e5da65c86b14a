package sharding

import "slices"

// Canonical returns the sharding in XLA's normal form, so that equivalent shardings become equal:
//
//   - A tensor with a single tile becomes replicated.
//   - Subgroups of size 1 are removed, and subgroups of the same kind are merged into one.
//   - The replicated subgroup is last, and the devices of each of its groups are in ascending order.
//   - A tensor with one kind of subgroup and no other split becomes a sharding of that kind.
//
// For a sharding with subgroups, the cost is proportional to the number of devices.
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

func (s OpSharding) mergeSubgroups() OpSharding {
	data := len(s.tiles.dims) - len(s.subgroups)
	// order lists the tile dimensions: first the tensor dimensions, then the subgroups by kind.
	order := make([]int, 0, len(s.tiles.dims))
	for i := range data {
		order = append(order, i)
	}
	kinds := slices.Compact(slices.SortedFunc(slices.Values(s.subgroups), func(a,
		b Kind) int {
		return a.canonicalOrder() - b.canonicalOrder()
	}))
	merged := OpSharding{kind: KindTiled, tiles: deviceTiles{dims: slices.Clone(s.tiles.dims[:data])}}
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
	unsplit := !slices.ContainsFunc(s.tiles.dims[:data], func(n int) bool { return n > 1 })
	if unsplit && len(merged.subgroups) == 1 {
		switch merged.subgroups[0] {
		case KindReplicated:
			return OpReplicated()
		case KindManual:
			return OpManual()
		}
	}
	devices := transpose(s.tiles.deviceList(), s.tiles.dims, order)
	if n := len(merged.subgroups); n > 0 && merged.subgroups[n-1] == KindReplicated {
		for group := range slices.Chunk(devices, merged.tiles.dims[len(merged.tiles.dims)-1]) {
			slices.Sort(group)
		}
	}
	if slices.Equal(merged.tiles.dims, s.tiles.dims) && slices.Equal(merged.subgroups, s.subgroups) &&
		slices.Equal(devices, s.tiles.deviceList()) {
		return s // preserves the iota form
	}
	merged.tiles.devices = devices
	return merged
}

// canonicalOrder returns the position of subgroups of kind k in XLA's canonical order.
func (k Kind) canonicalOrder() int {
	if k == KindReplicated {
		return int(KindUnreduced) + 1
	}
	return int(k)
}
