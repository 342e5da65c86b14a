package lowering

import (
	"strconv"
	"strings"
)

// names hands out SSA argument names that are unique in one top-level function and everything
// nested in it: MLIR refuses a region argument with the name of a value visible from outside.
type names map[string]bool

// pick returns a name like the one wanted, of letters, digits and underscores.
func (n names) pick(wanted string) string {
	name := identifier(wanted)
	// Bare numbers and argN are what the StableHLO builder itself uses for values and unnamed
	// arguments.
	if rest, ok := strings.CutPrefix(name, "arg"); ok {
		if _, err := strconv.Atoi(rest); err == nil {
			name = "p_" + name
		}
	}
	unique := name
	for i := 1; n[unique]; i++ {
		unique = name + "_" + strconv.Itoa(i)
	}
	n[unique] = true
	return unique
}

// identifier replaces what MLIR does not take in a bare identifier with underscores.
func identifier(s string) string {
	b := []byte(s)
	for i, c := range b {
		letter := c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
		if !letter && (c < '0' || c > '9') {
			b[i] = '_'
		}
	}
	if len(b) == 0 || (b[0] >= '0' && b[0] <= '9') {
		return "p_" + string(b)
	}
	return string(b)
}
