package global

import (
	"context"
	"io"
	"time"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/progress"
)

// Moved returns how often a value went from one layout to another.
func Moved(b *Backend) int64 { return b.moved.Load() }

// Slowly makes each compilation ahead of time take a while, and has it tell w how far it is each
// so often.
func Slowly(b *Backend, w io.Writer, while, every time.Duration) {
	compile := b.ahead.compile
	b.ahead.line = progress.To(w, progress.Options{Every: every})
	b.ahead.compile = func(ctx context.Context, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error) {
		time.Sleep(while)
		return compile(ctx, program, opts)
	}
}
