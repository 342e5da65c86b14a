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

// groupTensors groups the tensors whose names differ only in numbers. The group with the most bytes
// on a core is first.
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

// groupBy merges the elements of a list that have the same key. join adds an element to the first
// element with the same key. The result has the order of these first elements.
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

// pattern replaces each number in a name by a star.
func pattern(name string) string { return digits.ReplaceAllString(name, "*") }

// commonName returns a name for two tensors. If their names are not equal, it replaces each number
// in the name by a star.
func commonName(a, b string) string {
	if a == b {
		return a
	}
	return pattern(b)
}
