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
	var each []Alike
	for _, t := range r.Tensors {
		each = append(each, Alike{t, 1})
	}
	all := together(each, func(t Alike) string {
		return fmt.Sprint(t.Role, pattern(t.Name), t.DType, t.Shape, t.Shard, t.layout(), t.Copies, t.Donated)
	}, func(first *Alike, next Alike) {
		first.Count++
		first.Name = both(first.Name, next.Name)
	})
	slices.SortStableFunc(all, func(a, b Alike) int {
		return cmp.Compare(product64(b.BytesPerCore, int64(b.Count)), product64(a.BytesPerCore, int64(a.Count)))
	})
	return all
}

// together joins what has the same key, in the order of the first of each.
func together[T any, K comparable](list []T, key func(T) K, join func(first *T, next T)) []T {
	at, all := map[K]int{}, list[:0:0]
	for _, x := range list {
		k := key(x)
		if n, known := at[k]; known {
			join(&all[n], x)
			continue
		}
		at[k] = len(all)
		all = append(all, x)
	}
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
