package lowering

import (
	"strconv"
	"strings"
)

// nameSet contains the SSA names of arguments in one top-level function and its closures. MLIR
// rejects a region argument with the name of a value of an enclosing region.
type nameSet map[string]bool

// uniqueName adds and returns an unused identifier that is similar to wanted.
func (n nameSet) uniqueName(wanted string) string {
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

// identifier replaces characters that an MLIR identifier cannot contain by underscores.
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
