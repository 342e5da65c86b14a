package hlo

import (
	"slices"
	"strings"
)

// Automatic differentiation leaves operations in the text whose results are not read, such as the
// gradient of a product in another dtype. Compilers remove them, so they are not work of the model.

// sideEffects lists operations that run whether or not their results are read.
var sideEffects = []string{"stablehlo.custom_call", "stablehlo.while", "stablehlo.case", "stablehlo.if", "stablehlo.send", "stablehlo.recv",
	"stablehlo.infeed", "stablehlo.outfeed"}

// unreadOperations returns the operations of all functions in a region whose results nothing reads.
func unreadOperations(top *region) map[*operation]bool {
	found := map[*operation]bool{}
	for _, op := range top.ops {
		for _, region := range op.regions {
			if op.name == "func.func" {
				region.addUnread(map[string]bool{}, found)
				continue
			}
			for inner := range unreadOperations(region) {
				found[inner] = true
			}
		}
	}
	return found
}

// addUnread adds the operations of a region whose results nothing reads to found. read contains the names
// that the operations after the region read, to which it adds the names that the region reads. A region
// without a return is not complete, so all of its operations count as read.
func (r *region) addUnread(read map[string]bool, found map[*operation]bool) {
	complete := len(r.ops) > 0 && strings.HasSuffix(r.ops[len(r.ops)-1].name, "return")
	for _, op := range slices.Backward(r.ops) {
		removable := complete && len(op.results) > 0 && strings.HasPrefix(op.name, "stablehlo.") && !slices.Contains(sideEffects, op.name)
		if removable && !slices.ContainsFunc(op.results, func(name string) bool { return read[name] }) {
			found[op] = true
			continue
		}
		for _, region := range op.regions {
			region.addUnread(read, found)
		}
		for _, name := range op.operands {
			name, _, _ = strings.Cut(name, "#")
			read[name] = true
		}
	}
}
