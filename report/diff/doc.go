// Package diff compares compiled steps by their reports, before any of them runs: two commits, two
// splits, or one step compiled by two plugins. [Reports] says what became better or worse, each in a
// sentence that names the tensor, the collective and the bytes, and a [Budget] holds a step to limits
// in a file.
//
//	d, err := diff.Reports(before, after, diff.Tolerance{})
//	result := diff.Result{Slices: []*diff.Diff{d}}
//	result.WriteText(os.Stdout) // or WriteMarkdown, or json.Marshal(&result)
//
// Less memory, time, traffic and code is better. Tensors are paired by name, and those without a
// partner by dtype, shape and split, so that another name is no change. What lies within the
// [Tolerance] is the same: compiling a step twice gives the same figures, but for the times that it
// took. All values are plain data, safe for concurrent use as long as none is written to.
package diff
