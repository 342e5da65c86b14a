package misspelt

import (
	"cmp"
	"slices"
	"strings"
)

// Plain returns the text of a regular expression without its operators.
func Plain(pattern string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`\^$.*+?()[]{}|`, r) {
			return -1
		}
		return r
	}, pattern)
}

// Nearest returns the indexes of the names, at most so many, which contain something like the text,
// the likest first, and of equal ones the shortest.
func Nearest(text string, names []string, most int) []int {
	cost := make([]int, len(names))
	order := make([]int, len(names))
	for i, name := range names {
		order[i], cost[i] = i, within(text, name)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(cost[a], cost[b]), cmp.Compare(len(names[a]), len(names[b])))
	})
	return order[:min(most, len(order))]
}

// within is the least number of edits that make text a part of name.
func within(text, name string) int {
	if len(text) > 200 { // a pattern that long is no name with a slip
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
