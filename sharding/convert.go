package sharding

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// OpSharding returns the spec over a mesh in the form that names devices. The result does not say
// which dimensions are open. Along axes that split nothing the devices hold copies, and a tensor
// that no axis splits is replicated.
func (s Spec) OpSharding(mesh Mesh) (OpSharding, error) {
	if err := s.validateAxes(mesh); err != nil {
		return OpSharding{}, err
	}
	var order, tile []int
	for _, dim := range s.dims {
		tile = append(tile, shards(mesh, dim))
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

// simplifyIota drops dimensions of size 1 and merges those that stay side by side, as XLA does: the
// result has the fewest dimensions.
func simplifyIota(sizes, perm []int) (reshape, order []int) {
	type run struct{ first, size int } // neighboring dimensions, as one
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
	byPlace := slices.Clone(runs)
	slices.SortFunc(byPlace, func(a, b run) int { return a.first - b.first })
	for _, r := range byPlace {
		reshape = append(reshape, r.size)
	}
	for _, r := range runs {
		order = append(order, slices.Index(byPlace, r))
	}
	if reshape == nil {
		return []int{1}, []int{0}
	}
	return reshape, order
}

// SpecOf returns the closed spec that means the same as op, on a mesh and for a tensor of the given
// rank. It does not use axes of size 1. If no spec over the axes of the mesh expresses op (one
// device holds the whole tensor, the devices are in another order, or a split within an axis), the
// error matches [errors.ErrUnsupported].
func SpecOf(mesh Mesh, op OpSharding, rank int) (Spec, error) {
	if rank < 0 {
		return Spec{}, wrong("spec of", "give a rank from 0", "rank %d is negative", rank)
	}
	op = op.Canonical()
	refuse := func(why string) (Spec, error) {
		return Spec{}, &errkind.Fault{Op: "sharding: spec of", Subject: fmt.Sprintf("%v on %v", op, mesh), Reason: why,
			Hint: "keep the OpSharding, or use a mesh with other axes", Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	}
	if op.kind == KindReplicated {
		return Replicated(rank), nil
	}
	tile := op.TileShape()
	switch {
	case op.kind != KindTiled:
		return refuse("no axes say this")
	case slices.ContainsFunc(op.subgroups, func(k Kind) bool { return k != KindReplicated }):
		return refuse("a subgroup is not replicated")
	case len(tile) != rank:
		return Spec{}, wrong("spec of", "give the rank of the tensor", "%v tiles %d dimensions of a tensor of rank %d", op, len(tile), rank)
	}
	places := op.tilePlaces(mesh.Size())
	if places == nil {
		return refuse("its devices are not those of the mesh")
	}
	spec, ok := specOfPlaces(mesh, tile, places)
	if !ok {
		return refuse("its tiles do not follow the axes")
	}
	return spec, nil
}

// tilePlaces returns, by device, the place of its tile without subgroups; nil if the devices are
// not 0 to count-1.
func (s OpSharding) tilePlaces(count int) [][]int {
	devices := s.tiles.expand()
	if len(devices) != count {
		return nil
	}
	places := make([][]int, count)
	for k, device := range devices {
		if device >= count {
			return nil
		}
		place := make([]int, len(s.tiles.dims))
		for i := len(place) - 1; i >= 0; i-- {
			place[i] = k % s.tiles.dims[i]
			k /= s.tiles.dims[i]
		}
		places[device] = place[:len(place)-len(s.subgroups)]
	}
	return places
}

// specOfPlaces finds the axes of each dimension from the step that the tile takes with the first
// step along the axis: the larger, the more major.
func specOfPlaces(mesh Mesh, tile []int, places [][]int) (Spec, bool) {
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
			if move := places[stride][d] - places[0][d]; move > 0 {
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
		if shards(mesh, spec.dims[d]) != n {
			return Spec{}, false
		}
	}
	for device, place := range places {
		coords := mesh.Coordinates(device)
		for d := range tile {
			if shardIndex(mesh, spec.dims[d], coords) != place[d] {
				return Spec{}, false
			}
		}
	}
	return spec, true
}
