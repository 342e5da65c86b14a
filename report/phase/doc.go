// Package phase says how far the making of a program is: which stage it has come to, and for which
// devices. Whoever compiles tells it, and package fit/progress draws a line of it.
package phase
