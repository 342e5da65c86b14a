package strategy

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/usercode"
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
		case !usercode.Library(frame):
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}
	}
}
