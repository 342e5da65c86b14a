// Package ir defines the values of a program before it is written as text: a [Module] of functions,
// a [Function] of statements, and a [Statement] with operands, results, attributes and regions.
//
// Package lowering creates one function for each function of a computation. The later passes over a
// step (annotations, collectives, regions and padding) work on these values. [Module.Text] then
// writes the text once. No pass parses the text.
//
// # Marks
//
// A statement whose ops depend on the whole step has a Mark, a value of the package that added it,
// until a pass replaces the statement. A statement with a Mark has no text: [Module.Text] returns
// an error for it.
//
// # Sharing
//
// All uses of a [Value] share one object, so values are compared as pointers. Statements may share
// a region. A pass must therefore not change a statement that it did not create: it copies the
// statement and changes the copy.
package ir
