package hlo

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// axisRef refers to an axis of a mesh or to a factor of an axis. If isFactor is true, the axis is
// divided into factors, and the reference is to the factor with the given size. pre is the product
// of the preceding factors.
type axisRef struct {
	axis, pre, size uint64
	isFactor        bool
}

// parseMeshGroups parses a MeshAxesReplicaGroupListProto: field 1 is a mesh with axes in field 1 (a
// name and, in field 2, a size), and field 2 contains the axes that the groups span. It returns nil
// for a mesh with another device order.
func parseMeshGroups(b []byte) ([][]int, error) {
	var sizes, devices []uint64
	var refs []axisRef
	err := decode(b, protoint.Scanner{
		1: protoint.Scanner{
			1: each(&sizes, func(axis []byte) (size uint64, err error) {
				err = decode(axis, protoint.Scanner{2: &size})
				return size, err
			}),
			2: &devices,
		},
		2: each(&refs, parseAxisRef),
	})
	if err != nil || devices != nil {
		return nil, err
	}
	return meshGroups(sizes, refs)
}

func parseAxisRef(b []byte) (ref axisRef, err error) {
	err = decode(b, protoint.Scanner{1: &ref.axis, 2: func(b []byte) error {
		ref.isFactor = true
		return decode(b, protoint.Scanner{1: &ref.pre, 2: &ref.size})
	}})
	return ref, err
}

// meshGroups returns the groups of devices of a mesh with the given axis sizes. The devices of a
// group differ only in their positions along the axes, or factors of axes, that refs contains.
func meshGroups(sizes []uint64, refs []axisRef) ([][]int, error) {
	bad := func() ([][]int, error) {
		return nil, malformed(nil, "groups over %v of a mesh %v", refs, sizes)
	}
	total := uint64(1)
	for _, n := range sizes {
		if n == 0 || n > maxDevices/total {
			return bad()
		}
		total *= n
	}
	boundaries := make([][]uint64, len(sizes)) // by axis, the products of its first factors
	for axis, n := range sizes {
		boundaries[axis] = []uint64{1, n}
	}
	for i, ref := range refs {
		if ref.axis >= uint64(len(sizes)) {
			return bad()
		}
		n := sizes[ref.axis]
		if !ref.isFactor {
			refs[i].pre, refs[i].size = 1, n
			continue
		}
		if ref.pre == 0 || ref.size == 0 || ref.pre > n || ref.size > n || n%(ref.pre*ref.size) != 0 {
			return bad()
		}
		boundaries[ref.axis] = append(boundaries[ref.axis], ref.pre, ref.pre*ref.size)
	}
	var dims, otherDims, groupDims []uint64 // otherDims and groupDims are indices into dims
	size := uint64(1)
	for axis := range sizes {
		slices.Sort(boundaries[axis])
		points := slices.Compact(boundaries[axis])
		for k := 1; k < len(points); k++ {
			if points[k]%points[k-1] != 0 {
				return bad()
			}
			place := uint64(len(dims))
			dims = append(dims, points[k]/points[k-1])
			if slices.ContainsFunc(refs, func(r axisRef) bool {
				return r.axis == uint64(axis) && r.pre <= points[k-1] && points[k] <= r.pre*r.size
			}) {
				groupDims, size = append(groupDims, place), size*dims[place]
			} else {
				otherDims = append(otherDims, place)
			}
		}
	}
	return slices.Collect(slices.Chunk(transposeIota(dims, append(otherDims, groupDims...)), int(size))), nil
}

// parseDeviceList parses a CollectiveDeviceListProto, which contains a list of groups or an
// IotaReplicaGroupListProto.
func parseDeviceList(b []byte) (groups [][]int, err error) {
	err = decode(b, protoint.Scanner{1: each(&groups, parseGroup), 2: func(b []byte) error {
		iota, err := parseIota(b)
		groups = append(groups, iota...)
		return err
	}})
	return groups, err
}

func parseGroup(b []byte) ([]int, error) {
	var ids []uint64
	if err := decode(b, protoint.Scanner{1: &ids}); err != nil {
		return nil, err
	}
	group := make([]int, len(ids))
	for k, id := range ids {
		if id >= maxDevices {
			return nil, malformed(nil, "a device of more than %d", maxDevices)
		}
		group[k] = int(id)
	}
	return group, nil
}

// parseIota parses an IotaReplicaGroupListProto. It contains a shape, a permutation of its dimensions
// as in [transposeIota], and the number and the size of the groups.
func parseIota(b []byte) ([][]int, error) {
	var count, size uint64
	var reshape, perm []uint64
	err := decode(b, protoint.Scanner{1: &count, 2: &size, 3: &reshape, 4: &perm})
	if err != nil {
		return nil, err
	}
	if count == 0 || size == 0 || count > maxDevices || size > maxDevices/count || len(reshape) != len(perm) {
		return nil, malformed(nil, "%d groups of %d devices", count, size)
	}
	total := count * size
	product := uint64(1)
	for _, n := range reshape {
		if n == 0 || n > total/product {
			return nil, malformed(nil, "%d devices in the shape %v", total, reshape)
		}
		product *= n
	}
	seen := map[uint64]bool{}
	for _, axis := range perm {
		if axis >= uint64(len(reshape)) || seen[axis] {
			return nil, malformed(nil, "the permutation %v", perm)
		}
		seen[axis] = true
	}
	if product != total {
		return nil, malformed(nil, "%d devices in the shape %v", total, reshape)
	}
	return slices.Collect(slices.Chunk(transposeIota(reshape, perm), int(size))), nil
}

// transposeIota returns the elements of an array of the given shape that contains 0, 1, 2, ... in row-major
// order, after its dimensions are permuted by perm.
func transposeIota(shape, perm []uint64) []int {
	strides, total := make([]uint64, len(shape)), uint64(1)
	for axis, n := range slices.Backward(shape) {
		strides[axis] = total
		total *= n
	}
	flat, index := make([]int, total), make([]uint64, len(perm))
	for k := range flat {
		for place, axis := range perm {
			flat[k] += int(index[place] * strides[axis])
		}
		for place, axis := range slices.Backward(perm) {
			if index[place]++; index[place] < shape[axis] {
				break
			}
			index[place] = 0
		}
	}
	return flat
}
