package report

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// axisRef is an axis of a mesh, or the part of it that is left after its first pre parts and has
// size parts.
type axisRef struct {
	axis, pre, size uint64
	part            bool
}

// parseMeshGroups reads a MeshAxesReplicaGroupListProto: field 1 is a mesh, whose axes are 1 (a
// name and, as 2, a size), and field 2 are the axes that the groups run over. It answers nil for a
// mesh whose devices are not in order.
func parseMeshGroups(b []byte) (groups [][]int, err error) {
	var sizes []uint64
	var refs []axisRef
	ordered := true
	err = fields(b, func(n protowire.Number, v value) error {
		switch n {
		case 1:
			return fields(v.bytes, func(n protowire.Number, v value) error {
				if n != 1 {
					ordered = false
					return nil
				}
				size := uint64(0)
				err := fields(v.bytes, func(n protowire.Number, v value) error {
					if n == 2 {
						size = v.number
					}
					return nil
				})
				sizes = append(sizes, size)
				return err
			})
		case 2:
			ref, err := parseAxisRef(v.bytes)
			refs = append(refs, ref)
			return err
		}
		return nil
	})
	if err != nil || !ordered {
		return nil, err
	}
	return meshGroups(sizes, refs)
}

func parseAxisRef(b []byte) (ref axisRef, err error) {
	err = fields(b, func(n protowire.Number, v value) error {
		switch n {
		case 1:
			ref.axis = v.number
		case 2:
			ref.part = true
			return fields(v.bytes, func(n protowire.Number, v value) error {
				switch n {
				case 1:
					ref.pre = v.number
				case 2:
					ref.size = v.number
				}
				return nil
			})
		}
		return nil
	})
	return ref, err
}

// meshGroups cuts the axes where the references begin and end, and joins the devices that differ
// along the referenced pieces only.
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
	cuts := make([][]uint64, len(sizes)) // by axis, the products of its first pieces
	for axis, n := range sizes {
		cuts[axis] = []uint64{1, n}
	}
	for i, ref := range refs {
		if ref.axis >= uint64(len(sizes)) {
			return bad()
		}
		n := sizes[ref.axis]
		if !ref.part {
			refs[i].pre, refs[i].size = 1, n
			continue
		}
		if ref.pre == 0 || ref.size == 0 || ref.pre > n || ref.size > n || n%(ref.pre*ref.size) != 0 {
			return bad()
		}
		cuts[ref.axis] = append(cuts[ref.axis], ref.pre, ref.pre*ref.size)
	}
	var dims []uint64
	var joined []bool
	for axis := range sizes {
		slices.Sort(cuts[axis])
		points := slices.Compact(cuts[axis])
		for k := 1; k < len(points); k++ {
			if points[k]%points[k-1] != 0 {
				return bad()
			}
			dims = append(dims, points[k]/points[k-1])
			joined = append(joined, slices.ContainsFunc(refs, func(r axisRef) bool {
				return r.axis == uint64(axis) && r.pre <= points[k-1] && points[k] <= r.pre*r.size
			}))
		}
	}
	size := uint64(1)
	for d := range dims {
		if joined[d] {
			size *= dims[d]
		}
	}
	flat, filled := make([]int, total), make([]uint64, total/size)
	for device := range total {
		key, rest, stride := uint64(0), device, uint64(1)
		for d := len(dims) - 1; d >= 0; d-- {
			if !joined[d] {
				key += rest % dims[d] * stride
				stride *= dims[d]
			}
			rest /= dims[d]
		}
		flat[key*size+filled[key]] = int(device)
		filled[key]++
	}
	return cut(flat, int(size)), nil
}

// parseDeviceList reads a CollectiveDeviceListProto: groups one by one, or as an iota that is
// reshaped and transposed.
func parseDeviceList(b []byte) (groups [][]int, err error) {
	err = fields(b, func(n protowire.Number, v value) error {
		switch n {
		case 1:
			group, err := parseGroup(v.bytes)
			groups = append(groups, group)
			return err
		case 2:
			iota, err := parseIota(v.bytes)
			groups = append(groups, iota...)
			return err
		}
		return nil
	})
	return groups, err
}

func parseGroup(b []byte) (group []int, err error) {
	err = fields(b, func(n protowire.Number, v value) error {
		if n != 1 {
			return nil
		}
		if !v.packed {
			group = append(group, int(min(v.number, maxDevices)))
		}
		if group == nil {
			group = make([]int, 0, len(v.bytes)) // a byte or more each
		}
		for b := v.bytes; len(b) > 0; {
			id, size := protowire.ConsumeVarint(b)
			if size < 0 {
				return malformed(protowire.ParseError(size), "")
			}
			group, b = append(group, int(min(id, maxDevices))), b[size:]
		}
		return nil
	})
	for _, id := range group {
		if id >= maxDevices {
			return nil, malformed(nil, "a device of more than %d", maxDevices)
		}
	}
	return group, err
}

// parseIota reads an IotaReplicaGroupListProto: the numbers from 0 in the shape reshape, transposed
// by perm, in groups of size.
func parseIota(b []byte) ([][]int, error) {
	var count, size uint64
	var reshape, perm []uint64
	err := fields(b, func(n protowire.Number, v value) (err error) {
		switch n {
		case 1:
			count = v.number
		case 2:
			size = v.number
		case 3:
			reshape, err = v.numbers(reshape)
		case 4:
			perm, err = v.numbers(perm)
		}
		return err
	})
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
	strides := make([]uint64, len(reshape))
	stride := uint64(1)
	for axis := len(reshape) - 1; axis >= 0; axis-- {
		strides[axis] = stride
		stride *= reshape[axis]
	}
	flat := make([]int, total)
	index := make([]uint64, len(perm))
	for k := range total {
		id := uint64(0)
		for place, axis := range perm {
			id += index[place] * strides[axis]
		}
		flat[k] = int(id)
		for place := len(perm) - 1; place >= 0; place-- {
			if index[place]++; index[place] < reshape[perm[place]] {
				break
			}
			index[place] = 0
		}
	}
	return cut(flat, int(size)), nil
}

// cut divides a list into groups of a size.
func cut(flat []int, size int) [][]int {
	groups := make([][]int, len(flat)/size)
	for i := range groups {
		groups[i] = flat[i*size : (i+1)*size]
	}
	return groups
}
