//go:build race || asan

package screen

// slower is how much more time a detector may take as it watches the program.
const slower = 5
