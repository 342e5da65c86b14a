package similar

import (
	"cmp"
	"slices"
	"strings"
)

// TrimOperators removes the operators of regular expressions from a pattern.
func TrimOperators(pattern string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`\^$.*+?()[]{}|`, r) {
			return -1
		}
		return r
	}, pattern)
}

// Nearest returns the indexes of at most n names, the most similar name first. Names are ordered by
// the edit distance between text and the most similar substring of the name, and then by length.
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

// editDistance returns the minimum number of edits that convert text to any substring of name. It
// considers at most the first 200 bytes of text.
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
