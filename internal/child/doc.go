// Package child does a piece of work in a process of its own, so that work which takes its process
// down (a compiler that aborts, or is killed for its memory) or hangs is an error.
//
// [Run] starts the process and hands it a request; [Serve] is the other side. The child's standard
// input carries the request and stays open: it ends with the parent, and the child with it. On
// Linux the kernel ends the child with its parent too. What the child writes to its outputs is kept
// as its last words.
package child
