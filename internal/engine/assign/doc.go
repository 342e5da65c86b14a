// Package assign defines the three ways to write a variable: replace, add and subtract.
package assign
