// Package screen looks in programs for what is known to take the process down inside
// a compiler instead of giving an error. It is no verifier: what it lets pass, the
// compiler judges.
//
// MLIR text is read token by token (screen.go, text.go), and the operations that can
// do harm are read whole (operation.go): calls (calls.go), custom calls of compilers
// (customcall.go), paddings (padding.go), and what the host's compiler makes of sorts,
// transforms and constants (host.go). Shardings and meshes are read for their numbers
// (gspmd.go, mesh.go). Of bytecode there are only the strings (bytecode.go), of an HLO
// proto whether it was optimized (hlo.go).
//
// It is a value: no plugin, no cgo, no state.
package screen
