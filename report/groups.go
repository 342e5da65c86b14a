package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/tpustrategy/tpustrategy/report/memory"
)

// tensorGroup is a group of tensors whose names differ only in numbers, such as the layers of a stack.
type tensorGroup struct {
	// Tensor is the first tensor of the group. If there are several, its name is the pattern of
	// their names, such as "/layers_*/up".
	memory.Tensor
	Count int
}

// groupTensors returns the tensors in groups with equal patterns, sorted by the bytes of the group on a
// core, the largest first.
func (r *Report) groupTensors() []tensorGroup {
	var each []tensorGroup
	for _, t := range r.Tensors {
		each = append(each, tensorGroup{t, 1})
	}
	all := groupBy(each, func(t tensorGroup) string {
		return fmt.Sprint(t.Role, pattern(t.Name), t.DType, t.Shape, t.Shard, layout(t.Tensor), t.Copies, t.Donated)
	}, func(first *tensorGroup, next tensorGroup) {
		first.Count++
		first.Name = commonName(first.Name, next.Name)
	})
	slices.SortStableFunc(all, func(a, b tensorGroup) int {
		return cmp.Compare(product64(b.BytesPerCore, int64(b.Count)), product64(a.BytesPerCore, int64(a.Count)))
	})
	return all
}

// groupBy returns one element per key, in the order of the first element with each key. join adds a
// further element with the same key to the first one.
func groupBy[T any, K comparable](list []T, key func(T) K, join func(first *T, next T)) []T {
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

// pattern returns a name with each number replaced by a star.
func pattern(name string) string { return digits.ReplaceAllString(name, "*") }

// commonName returns the name of two tensors with equal names, and otherwise the pattern of the names.
func commonName(a, b string) string {
	if a == b {
		return a
	}
	return pattern(b)
}
