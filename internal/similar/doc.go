// Package similar finds the names that are most similar to a pattern. Error messages suggest these
// names if a pattern matches no name.
package similar
