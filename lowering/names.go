package lowering

import (
	"strconv"
	"strings"
)

// names allocates SSA names of arguments that are unique in one top-level function and its
// closures. MLIR rejects a region argument with the name of a value of an enclosing region.
type names map[string]bool

// pick returns an unused name similar to wanted, of letters, digits and underscores.
func (n names) pick(wanted string) string {
	name := identifier(wanted)
	// The StableHLO builder itself uses bare numbers and argN for values and unnamed arguments.
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

// identifier replaces the characters that MLIR does not accept in a bare identifier with
// underscores.
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
