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
