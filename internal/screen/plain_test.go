//go:build !race && !asan

package screen

// slower is how much more time a detector may take, where there is none.
const slower = 1
