// Package similar finds the names that are most similar to a pattern. Error messages about patterns
// without a match list these names.
package similar
