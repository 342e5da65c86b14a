package sharding

import (
	"fmt"
	"slices"
)

// maxTiles is the maximum number of devices of a tile assignment. It limits the memory that parsing
// a short text or message can allocate.
const maxTiles = 1 << 20

// deviceTiles is an array of devices with dimensions dims. The devices are either listed, or
// computed in iota form: the numbers 0, 1, 2 and so on as an array of dimensions reshape,
// transposed by perm.
type deviceTiles struct {
	dims          []int
	devices       []int
	reshape, perm []int
}

func tileCount(name string, dims []int) (int, error) {
	size := 1
	for _, n := range dims {
		if n < 1 {
			return 0, invalidError("tile", "each entry must be at least 1", "%s %v have an entry below 1", name, dims)
		}
		if n > maxTiles/size {
			return 0, invalidError("tile", "use fewer tiles", "%s %v have more than %d tiles", name, dims, maxTiles)
		}
		size *= n
	}
	return size, nil
}

func (t deviceTiles) checkIota(size int) error {
	count, err := tileCount("iota dimensions", t.reshape)
	if err != nil {
		return err
	}
	if count != size {
		return invalidError("tile", fmt.Sprintf("the product of the iota dimensions must be %d", size),
			"iota dimensions %v have %d devices for tile dimensions %v", t.reshape, count, t.dims)
	}
	sorted := slices.Sorted(slices.Values(t.perm))
	for i := range sorted {
		if sorted[i] != i {
			return invalidError("tile", "list each dimension once, from 0", "%v is not a permutation", t.perm)
		}
	}
	if len(t.perm) != len(t.reshape) || len(t.perm) == 0 {
		return invalidError("tile", "list one entry for each dimension",
			"the permutation %v does not fit the dimensions %v", t.perm, t.reshape)
	}
	return nil
}

// deviceList returns the device of each tile, in row-major order.
func (t deviceTiles) deviceList() []int {
	if t.reshape == nil {
		return slices.Clone(t.devices)
	}
	size := 1
	for _, n := range t.reshape {
		size *= n
	}
	devices := make([]int, size)
	for i := range devices {
		devices[i] = i
	}
	return transpose(devices, t.reshape, t.perm)
}

// transpose permutes the dimensions of a row-major array with dimensions dims. order lists the old
// dimensions in their new order.
func transpose(array, dims, order []int) []int {
	strides := make([]int, len(dims))
	size := 1
	for i := len(dims) - 1; i >= 0; i-- {
		strides[i] = size
		size *= dims[i]
	}
	out := make([]int, len(array))
	index := make([]int, len(order))
	for k := range out {
		at := 0
		for i, d := range order {
			at += index[i] * strides[d]
		}
		out[k] = array[at]
		for i := len(order) - 1; i >= 0; i-- {
			if index[i]++; index[i] < dims[order[i]] {
				break
			}
			index[i] = 0
		}
	}
	return out
}
