// Package ir has the values that a program consists of before it is text: a [Module] of functions,
// a [Function] of statements, and a [Statement] with its operands, results, attributes and regions.
//
// Package lowering makes a function of these for each function of a computation. What happens to a
// step afterwards, its annotations, collectives, regions and padding, is passes over these values.
// [Module.Text] then writes the text, once; nothing reads it again.
//
// # Marks
//
// A statement whose meaning depends on the whole step carries a Mark, a value of the package that
// asked for it, until a pass replaces the statement. A statement with a Mark has no text:
// [Module.Text] returns an error for it.
//
// # Sharing
//
// A [Value] is one object wherever it stands, so that values are compared as pointers. Two
// statements may share a region. A pass therefore changes no statement that it did not make: it
// copies the statement and changes the copy.
package ir
