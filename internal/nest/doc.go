// Package nest walks nests: trees of slices, maps and structs around leaves. The code of a replica
// takes nests and returns them.
//
// A slice or a map is a nest if its elements are of an interface type or are nests themselves, such
// as []any and map[string]any. A struct is a nest if all its fields are exported and each is of
// such a type. Everything else is a leaf: a []float32 is a host tensor. Slices and fields are
// walked in order, maps by ascending key, so that the order of leaves is the same in every process.
//
// A nest has [MaxDepth] levels and [MaxSize] members at most. An [*Error] says which [Mistake] was
// found: a nest that holds itself, two nests of different structure, a key that is not equal to
// itself.
package nest
