package similar

import (
	"cmp"
	"slices"
	"strings"
)

// TrimOperators returns the text of a regular expression without its operators.
func TrimOperators(pattern string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`\^$.*+?()[]{}|`, r) {
			return -1
		}
		return r
	}, pattern)
}

// Nearest returns the indexes of at most n names, ordered by the number of edits between the text
// and the most similar substring of the name, then by the length of the name.
func Nearest(text string, names []string, n int) []int {
	cost := make([]int, len(names))
	order := make([]int, len(names))
	for i, name := range names {
		order[i], cost[i] = i, editDistance(text, name)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(cost[a], cost[b]), cmp.Compare(len(names[a]), len(names[b])))
	})
	return order[:min(n, len(order))]
}

// editDistance returns the least number of edits that turn the text into a substring of the name.
// It compares at most the first 200 bytes of the text.
func editDistance(text, name string) int {
	if len(text) > 200 {
		text = text[:200]
	}
	row := make([]int, len(name)+1)
	for i := range len(text) {
		before := row[0]
		row[0] = i + 1
		for j := range len(name) {
			edit := before
			if text[i] != name[j] {
				edit++
			}
			before = row[j+1]
			row[j+1] = min(edit, before+1, row[j]+1)
		}
	}
	return slices.Min(row)
}
