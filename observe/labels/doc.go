// Package labels adds labels to Go's profiles, so that `go tool pprof -tagfocus` can select the
// goroutines of a run.
package labels
