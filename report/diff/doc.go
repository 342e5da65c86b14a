// Package diff compares compiled steps by their reports, before any of them runs: two commits, two
// shardings, or one step compiled by two plugins. [Reports] lists the changes for the better and for
// the worse, each in a sentence with the tensor or the collective and the bytes. A [Budget] compares
// a step with limits from a file.
//
//	d, err := diff.Reports(before, after, diff.Tolerance{})
//	result := diff.Result{Slices: []*diff.Diff{d}}
//	result.WriteText(os.Stdout) // or WriteMarkdown, or json.Marshal(&result)
//
// Less memory, time, traffic and code is better. Tensors are matched by name, and the remaining
// tensors by dtype, shape and sharding, so that renaming a tensor is not a change. Differences within
// the [Tolerance] are ignored: compiling a step twice returns the same figures, except for the
// compilation times. All values are plain data, which is safe for concurrent use while it is not
// modified.
package diff
