package sharding

import (
	"slices"
)

// IndexRanges returns the range of indices that a device holds in each dimension of a tensor of the
// given shape, and whether the device holds any tile. A dimension of size D in n tiles is split at
// multiples of D/n rounded up, so the last tiles can be smaller or empty. The contents of manual,
// unknown, tuple and unreduced shardings are not determined by the sharding; for these kinds
// IndexRanges returns an error.
func (s OpSharding) IndexRanges(shape []int, device int) ([]Range, bool, error) {
	ranges := make([]Range, len(shape))
	for i, size := range shape {
		if size < 0 {
			return nil, false, invalidError("index ranges", "pass the static size", "dimension %d has size %d", i, size)
		}
		ranges[i] = Range{0, size}
	}
	switch s.kind {
	case KindReplicated:
		return ranges, true, nil
	case KindMaximal:
		return ranges, s.device == device, nil
	case KindTiled:
	default:
		return nil, false, invalidError("index ranges", "use a replicated, maximal or tiled sharding",
			"a sharding of kind %v does not determine which elements a device holds", s.kind)
	}
	rank := len(s.tiles.dims) - len(s.subgroups)
	if rank != len(shape) {
		return nil, false, invalidError("index ranges", "pass a shape of the same rank",
			"%v tiles %d dimensions, but the shape %v has %d", s, rank, shape, len(shape))
	}
	if k := slices.IndexFunc(s.subgroups, func(k Kind) bool { return k != KindReplicated }); k >= 0 {
		return nil, false, invalidError("index ranges", "use replicated subgroups only",
			"%v has a subgroup of kind %v, which does not determine which elements a device holds", s, s.subgroups[k])
	}
	k := slices.Index(s.tiles.deviceList(), device)
	if k < 0 {
		return nil, false, nil
	}
	for i := len(s.tiles.dims) - 1; i >= 0; i-- {
		n := s.tiles.dims[i]
		if i < rank {
			tile := shape[i]/n + min(shape[i]%n, 1)
			start := min(k%n*tile, shape[i])
			ranges[i] = Range{start, min(start+tile, shape[i])}
		}
		k /= n
	}
	return ranges, true, nil
}
