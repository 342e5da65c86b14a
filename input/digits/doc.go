// Package digits embeds the 1,797 handwritten digits that README.md describes, so that a program
// can read them from any working directory.
package digits
