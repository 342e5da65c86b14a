// Package nest traverses nests, which are trees of slices, maps and structs. The functions that run
// on replicas accept and return nests.
//
// A slice or a map is a nest if its elements have an interface type or are nests, such as []any and
// map[string]any. A struct is a nest if it has only exported fields of such types. All other values
// are leaves; for example, a []float32 is a host tensor. Slices and struct fields are visited in
// order, and maps by ascending key, so that the order of leaves is the same in all processes.
//
// A nest has at most [MaxDepth] levels and [MaxSize] members. Functions return an [*Error] for an invalid
// nest, such as a nest that contains itself, nests with different structures, or a map with a NaN key.
package nest
