// Package misspelt finds the names that come nearest to a pattern, for messages about patterns that
// match nothing.
package misspelt
