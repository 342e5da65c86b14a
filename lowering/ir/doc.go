// Package ir represents a program before it is written as MLIR text: a [Module] of functions, a
// [Function] of statements, and a [Statement], which is one operation with operands, results,
// attributes and regions.
//
// Package lowering creates the functions of a module from a GoMLX graph. Later passes insert
// sharding annotations, collectives, regions and padding. [Module.Text] then writes the text once.
// No pass parses the text.
//
// # Placeholders
//
// Some operations can be lowered only after the complete step is known, such as sharding
// annotations. Until then a placeholder represents the operation: a Statement whose Placeholder
// field describes it. A pass must replace each placeholder, because [Module.Text] returns an error
// for it.
//
// # Sharing
//
// All uses of a [Value] share one pointer, so values are compared by pointer. Statements may share
// a region. A pass must therefore copy a statement that it did not create before it changes the
// statement.
package ir
