package ragged

import "slices"

// Dim describes how a dimension depends on the padded sizes: the dimension is Factor * sizes[Size].
// If Factor is 0, it depends on no padded size.
type Dim struct{ Size, Factor int }

// IsPadded reports whether the dimension has padding.
func (d Dim) IsPadded() bool { return d.Factor > 0 }

// variantDims contains the dimensions of one value in programs that were traced for different
// padded sizes. Element k belongs to program k.
type variantDims [][]int

// sizeDependencies returns how the dimensions of a value depend on the padded sizes. sizes[k]
// contains the sizes of program k. bad is the first dimension that is not a multiple of exactly one
// size, or -1.
func (s variantDims) sizeDependencies(sizes [][]int) (dims []Dim, bad int) {
	dims = make([]Dim, len(s[0]))
	for d, n := range s[0] {
		for k := 1; k < len(s); k++ {
			if s[k][d] == n {
				continue
			}
			size := differingIndex(sizes[0], sizes[k])
			times := n / sizes[0][size]
			if times*sizes[0][size] != n || times*sizes[k][size] != s[k][d] || dims[d].IsPadded() &&
				dims[d] != (Dim{size, times}) {
				return nil, d
			}
			dims[d] = Dim{size, times}
		}
		// A dimension must be the same multiple of its size in each program.
		for k := 1; k < len(s); k++ {
			want := n
			if dims[d].IsPadded() {
				want = dims[d].Factor * sizes[k][dims[d].Size]
			}
			if s[k][d] != want {
				return nil, d
			}
		}
	}
	return dims, -1
}

// differingIndex returns the index at which two lists of sizes differ.
func differingIndex(a, b []int) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return 0
}

func paddedDims(dims []Dim) (all []int) {
	for d, dim := range dims {
		if dim.IsPadded() {
			all = append(all, d)
		}
	}
	return all
}

func paddedDimsIn(dims []Dim, list []int) (all []int) {
	for _, d := range paddedDims(dims) {
		if slices.Contains(list, d) {
			all = append(all, d)
		}
	}
	return all
}
