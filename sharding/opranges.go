package sharding

import (
	"fmt"
	"slices"
)

// IndexRanges returns, per dimension of a tensor of the given shape, the
// indices that a device holds, and whether it holds any tile. A dimension of
// size D in n tiles is cut at multiples of D/n rounded up, so that the last
// tiles may be smaller or empty. Shardings that do not say who holds what
// (manual, unknown, tuple, unreduced) are an error.
func (s OpSharding) IndexRanges(shape []int, device int) ([]Range, bool, error) {
	ranges := make([]Range, len(shape))
	for i, size := range shape {
		if size < 0 {
			return nil, false, fmt.Errorf("sharding: dimension %d has size %d; give the static size", i, size)
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
		return nil, false, fmt.Errorf("sharding: %v sharding does not say what a device holds", s.kind)
	}
	rank := len(s.tiles.dims) - len(s.subgroups)
	if rank != len(shape) {
		return nil, false, fmt.Errorf("sharding: %v tiles %d dimensions, and the shape %v has %d", s, rank, shape, len(shape))
	}
	if k := slices.IndexFunc(s.subgroups, func(k Kind) bool { return k != KindReplicated }); k >= 0 {
		return nil, false, fmt.Errorf("sharding: %v has a subgroup that is %v, which does not say what a device holds", s, s.subgroups[k])
	}
	k := slices.Index(s.tiles.expand(), device)
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
