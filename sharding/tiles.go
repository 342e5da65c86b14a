package sharding

import (
	"fmt"
	"slices"
)

// maxTiles bounds the devices of a tile assignment, so that a short text or message cannot ask for
// unbounded memory.
const maxTiles = 1 << 20

// tiles is an array of devices: explicit, or counted up over the dimensions reshape and then
// transposed by perm (the iota form).
type tiles struct {
	dims          []int
	devices       []int
	reshape, perm []int
}

// tileCount returns the product of dims.
func tileCount(what string, dims []int) (int, error) {
	size := 1
	for _, n := range dims {
		if n < 1 {
			return 0, wrong("tile", "give at least 1", "%s %v have an entry below 1", what, dims)
		}
		if n > maxTiles/size {
			return 0, wrong("tile", "give fewer", "%s %v have more than %d tiles", what, dims, maxTiles)
		}
		size *= n
	}
	return size, nil
}

func (t tiles) checkIota(size int) error {
	count, err := tileCount("iota dimensions", t.reshape)
	if err != nil {
		return err
	}
	if count != size {
		return wrong("tile", fmt.Sprintf("give %d", size), "iota dimensions %v count %d devices for tile dimensions %v", t.reshape, count, t.dims)
	}
	sorted := slices.Sorted(slices.Values(t.perm))
	for i := range sorted {
		if sorted[i] != i {
			return wrong("tile", "give each dimension once, from 0", "%v is not a permutation", t.perm)
		}
	}
	if len(t.perm) != len(t.reshape) || len(t.perm) == 0 {
		return wrong("tile", "give one entry for each dimension", "the permutation %v does not fit the dimensions %v", t.perm, t.reshape)
	}
	return nil
}

// expand returns the devices by row-major tile.
func (t tiles) expand() []int {
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
	return permuted(devices, t.reshape, t.perm)
}

// permuted returns a row-major array of the given dimensions with the dimensions in another order.
func permuted(array, dims, order []int) []int {
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
