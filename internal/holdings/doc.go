// Package holdings keeps what an object has to free at its end: buffers and programs that its users,
// or the garbage collector, may free before, each once.
package holdings
