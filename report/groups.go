package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
)

// Alike is tensors that differ in the numbers of their names alone, such as the layers of a stack.
type Alike struct {
	// Tensor is the first of them, under the pattern of their names: "/layers_*/up" where there are
	// several.
	Tensor
	Count int
}

// Grouped returns the tensors in groups of those that are alike, in the order of their bytes on a core
// together, the largest first.
func (r *Report) Grouped() []Alike {
	at := map[string]int{}
	var all []Alike
	for _, t := range r.Tensors {
		key := fmt.Sprint(t.Role, pattern(t.Name), t.DType, t.Shape, t.Shard, t.layout(), t.Copies, t.Donated)
		if n, known := at[key]; known {
			all[n].Count++
			all[n].Name = both(all[n].Name, t.Name)
			continue
		}
		at[key] = len(all)
		all = append(all, Alike{t, 1})
	}
	slices.SortStableFunc(all, func(a, b Alike) int {
		return cmp.Compare(product64(b.BytesPerCore, int64(b.Count)), product64(a.BytesPerCore, int64(a.Count)))
	})
	return all
}

var digits = regexp.MustCompile(`[0-9]+`)

// pattern is a name with a star for each number.
func pattern(name string) string { return digits.ReplaceAllString(name, "*") }

// both is a name that stands for two of one pattern.
func both(a, b string) string {
	if a == b {
		return a
	}
	return pattern(b)
}
