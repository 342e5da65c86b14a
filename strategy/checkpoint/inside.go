package checkpoint

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazy"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// machine is the internal API of a strategy that this package uses.
type machine interface {
	// Quiet waits for running steps and calls f with a consistent set of the variables' layouts and
	// buffers. Buffers that f returns replace the old ones. Mesh returns the engine that copies
	// buffers.
	Quiet(ctx context.Context, doing string, of []*strategy.Variable, f func(at []*mesh.Layout, held []mesh.Buffers) (fresh []mesh.Buffers, err error)) error
	Mesh() *mesh.Runtime
	// Room reports whether the devices have memory for new values of the variables in addition to
	// the current ones.
	Room(variables []*strategy.Variable) bool
	// Fill assigns values to all variables or to none. readers is the number of parts that are read
	// concurrently. Each process reads the parts of its devices while they keep the old values.
	// Then Fill calls check, unless it is nil, and replaces the old values if check returns no
	// error. The host holds a sixteenth of its devices' bytes, or a single part that is larger. No
	// step may be launched meanwhile.
	Fill(ctx context.Context, variables []*strategy.Variable, from []lazy.Parts, readers int, check func(ctx context.Context) error) (staged int, err error)
}

var _ = inside.Of[machine]((*strategy.TPUStrategy)(nil))
