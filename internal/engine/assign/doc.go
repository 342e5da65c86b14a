// Package assign defines the operations that write a variable: replace, add and subtract.
package assign
