package strategy

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// panickedAt is the line of a step's code that the panic came from, which is being recovered by the
// function that calls panickedAt: the innermost frame that is no library's. It is empty if the
// step's code is not on the stack.
func panickedAt() string {
	pcs := make([]uintptr, 256)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		frame, more := frames.Next()
		switch {
		case !more || strings.HasSuffix(frame.Function, "strategy.(*Function).lower"):
			return ""
		case !ofLibrary(frame.Function):
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}
	}
}

// ofLibrary says whether a function belongs to what builds graphs, not to a step.
func ofLibrary(function string) bool {
	const ours = "github.com/tpustrategy/tpustrategy/"
	for _, prefix := range []string{
		"runtime.", "github.com/gomlx/", ours + "strategy.", ours + "strategy/train.", ours + "logical.", ours + "lowering", ours + "sharding.", ours + "precision.",
	} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}
