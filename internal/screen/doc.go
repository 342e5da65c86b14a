// Package screen looks in programs for what is known to take the process down inside a compiler
// instead of giving an error. It is no verifier: what it lets pass, the compiler judges.
//
// MLIR text is read once into operations (reader.go, operation.go), each with its own attributes,
// types and regions, in generic or in custom form. All checks stand on these: an attribute is that
// of the operation in which it stands, and ends where it ends. They are about functions and calls
// (function.go, calls.go), attributes (attribute.go), custom calls of compilers (customcall.go),
// paddings (padding.go), convolutions (convolution.go), and what the host's compiler makes of
// sorts, transforms and divisions (host.go, division.go). What crashes wherever it stands, sizes of
// tensors and meshes and depth, is seen among the tokens (screen.go, text.go, mesh.go). Of bytecode
// there are only the strings (bytecode.go), of an HLO proto whether it was optimized (hlo.go).
//
// It is a value: no plugin, no cgo, no state.
package screen
