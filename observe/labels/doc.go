// Package labels puts labels of a run on Go's profiles, so that `go tool pprof -tagfocus` tells the
// time of a run's goroutines from the rest of the process.
package labels
