package gomlx

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/fit/progress"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Moved returns the number of times a value was resharded.
func Moved(b *Backend) int64 { return b.reshardCount.Load() }

// Slowly delays each compilation ahead of time, and shortens the interval of its progress reports
// to w.
func Slowly(b *Backend, w io.Writer, while, every time.Duration) {
	b.ahead.line = progress.NewLine(w, progress.Options{Every: every})
	fast := b.runtime
	slow := func(ctx context.Context, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error) {
		time.Sleep(while)
		x, _, err := fast.Build(ctx, "slow", program, opts, nil)
		if err != nil {
			return nil, err
		}
		return x.(engine.OfflineProgram).Executable, nil
	}
	compilesBy(b, slow)
}

// Refuse makes each compilation ahead of time fail with an error.
func Refuse(b *Backend, answer error) {
	compilesBy(b, func(context.Context, pjrt.Program, pjrt.CompileOptions) (*pjrt.Executable, error) {
		return nil,
			answer
	})
}

func compilesBy(b *Backend, compile func(context.Context, pjrt.Program, pjrt.CompileOptions) (*pjrt.Executable,
	error)) {
	was := b.runtime
	groups := slices.Collect(slices.Chunk(slices.Concat(was.Topology().DeviceIDs()...), b.logical.Size()))
	b.runtime = engine.NewCompilingRuntime(was.Topology(), was.Platform(), compile, engine.Options{ErrorPrefix: "gomlx",
		Parent: context.Background(), Groups: groups, Closed: ErrFinalized})
}
