// Package nest traverses nests, which are trees of slices, maps and structs. Replica functions
// accept and return nests.
//
// A slice or a map is a nest if its elements have an interface type or are nests, such as []any and
// map[string]any. A struct is a nest if all its fields are exported and have such types. All other
// values are leaves; for example, a []float32 is a host tensor. Slices and fields are visited in
// order, and maps by ascending key, so that the order of leaves is the same in all processes.
//
// A nest has at most [MaxDepth] levels and [MaxSize] members. An [*Error] contains the [ErrorKind],
// for example a nest that contains itself, two nests with different structures, or a NaN as a key.
package nest
