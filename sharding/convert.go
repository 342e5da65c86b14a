package sharding

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// OpSharding converts the spec to a sharding that lists the devices of mesh. Devices that differ
// only in axes that split no dimension hold the same shard. If no axis splits the tensor, the
// result is replicated. The result does not contain which dimensions are open. OpSharding returns
// an error if the spec is not valid on the mesh.
func (s Spec) OpSharding(mesh Mesh) (OpSharding, error) {
	if err := s.validateAxes(mesh); err != nil {
		return OpSharding{}, err
	}
	var order, tile []int
	for _, dim := range s.dims {
		tile = append(tile, numShards(mesh, dim))
		for _, name := range dim.Axes {
			order = append(order, mesh.axisIndex(name))
		}
	}
	copies := mesh.Size()
	for _, n := range tile {
		copies /= n
	}
	if copies == mesh.Size() {
		return OpReplicated(), nil
	}
	var subgroups []Kind
	if copies > 1 {
		tile = append(tile, copies)
		subgroups = []Kind{KindReplicated}
	}
	var sizes []int
	for i, axis := range mesh.axes {
		sizes = append(sizes, axis.Size)
		if !slices.Contains(order, i) {
			order = append(order, i)
		}
	}
	reshape, perm := simplifyIota(sizes, order)
	return OpIotaTile(tile, reshape, perm, subgroups...)
}

// simplifyIota simplifies a device list in iota form: 0, 1, 2 and so on, reshaped to sizes and
// transposed by perm. Like XLA, it removes dimensions of size 1 and merges dimensions that stay
// adjacent, so that the number of dimensions is minimal.
func simplifyIota(sizes, perm []int) (reshape, order []int) {
	type run struct{ first, size int } // merged adjacent dimensions
	var runs []run
	next := -1
	for _, p := range perm {
		if sizes[p] == 1 {
			continue
		}
		if p == next {
			runs[len(runs)-1].size *= sizes[p]
		} else {
			runs = append(runs, run{p, sizes[p]})
		}
		for next = p + 1; next < len(sizes) && sizes[next] == 1; next++ {
		}
	}
	sorted := slices.Clone(runs)
	slices.SortFunc(sorted, func(a, b run) int { return a.first - b.first })
	for _, r := range sorted {
		reshape = append(reshape, r.size)
	}
	for _, r := range runs {
		order = append(order, slices.Index(sorted, r))
	}
	if reshape == nil {
		return []int{1}, []int{0}
	}
	return reshape, order
}

// SpecOf converts op to a closed spec on mesh, for a tensor of the given rank. It does not use axes
// of size 1. If no spec on the mesh is equivalent to op, the error matches [errors.ErrUnsupported].
// Examples are a tensor on one device, devices in another order, and a split of only a part of an
// axis.
func SpecOf(mesh Mesh, op OpSharding, rank int) (Spec, error) {
	if rank < 0 {
		return Spec{}, invalidError("spec of", "the rank must be at least 0", "rank %d is negative", rank)
	}
	op = op.Canonical()
	unsupported := func(reason string) (Spec, error) {
		return Spec{}, &errkind.Fault{Op: "sharding: spec of", Subject: fmt.Sprintf("%v on %v", op, mesh), Reason: reason,
			Hint:  "keep the OpSharding, or use a mesh with other axes",
			Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	}
	if op.kind == KindReplicated {
		return Replicated(rank), nil
	}
	tile := op.TileShape()
	switch {
	case op.kind != KindTiled:
		return unsupported("a spec cannot express a sharding of kind " + op.kind.String())
	case slices.ContainsFunc(op.subgroups, func(k Kind) bool { return k != KindReplicated }):
		return unsupported("a subgroup is not replicated")
	case len(tile) != rank:
		return Spec{}, invalidError("spec of", "pass the rank of the tensor",
			"%v tiles %d dimensions of a tensor of rank %d", op, len(tile), rank)
	}
	coordinates := op.tileCoordinates(mesh.Size())
	if coordinates == nil {
		return unsupported("its devices differ from the devices of the mesh")
	}
	spec, ok := inferSpec(mesh, tile, coordinates)
	if !ok {
		return unsupported("its tiles do not follow the mesh axes")
	}
	return spec, nil
}

// tileCoordinates returns the tile coordinates of each device, without the subgroup dimensions. It
// returns nil if the devices are not 0 to count-1.
func (s OpSharding) tileCoordinates(count int) [][]int {
	devices := s.tiles.deviceList()
	if len(devices) != count {
		return nil
	}
	coordinates := make([][]int, count)
	for k, device := range devices {
		if device >= count {
			return nil
		}
		tile := make([]int, len(s.tiles.dims))
		for i := len(tile) - 1; i >= 0; i-- {
			tile[i] = k % s.tiles.dims[i]
			k /= s.tiles.dims[i]
		}
		coordinates[device] = tile[:len(tile)-len(s.subgroups)]
	}
	return coordinates
}

// inferSpec infers which mesh axes split each tensor dimension. An axis splits a dimension if the
// first step along the axis changes the tile index of the dimension. The axis with the largest
// change is the major axis. It returns false if no spec produces these tiles.
func inferSpec(mesh Mesh, tile []int, coordinates [][]int) (Spec, bool) {
	type step struct {
		axis string
		size int
	}
	steps := make([][]step, len(tile))
	stride := mesh.Size()
	for _, axis := range mesh.axes {
		stride /= axis.Size
		if axis.Size == 1 {
			continue
		}
		for d := range tile {
			if move := coordinates[stride][d] - coordinates[0][d]; move > 0 {
				steps[d] = append(steps[d], step{axis.Name, move})
			}
		}
	}
	spec := Replicated(len(tile))
	for d := range steps {
		slices.SortStableFunc(steps[d], func(a, b step) int { return b.size - a.size })
		for _, s := range steps[d] {
			spec.dims[d].Axes = append(spec.dims[d].Axes, s.axis)
		}
	}
	if spec.validateAxes(mesh) != nil {
		return Spec{}, false
	}
	for d, n := range tile {
		if numShards(mesh, spec.dims[d]) != n {
			return Spec{}, false
		}
	}
	for device, want := range coordinates {
		coords := mesh.Coordinates(device)
		for d := range tile {
			if shardIndex(mesh, spec.dims[d], coords) != want[d] {
				return Spec{}, false
			}
		}
	}
	return spec, true
}
