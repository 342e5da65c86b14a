package checkpoint

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazy"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// machine is what this package uses of a strategy beside the contract.
type machine interface {
	// Quiet calls f with the layouts and the buffers of variables, of one moment, when the steps under
	// way are done. Buffers that f returns take their places. Mesh is the machine that copies them.
	Quiet(ctx context.Context, doing string, of []*strategy.Variable, f func(at []*mesh.Layout, held []mesh.Buffers) (fresh []mesh.Buffers, err error)) error
	Mesh() *mesh.Machine
	// Room reports whether the devices have room for values of the variables beside those that they
	// hold.
	Room(variables []*strategy.Variable) bool
	// Fill gives variables values in parts, all of them or none, so many parts at a time. Each process
	// reads what its devices hold, beside what they have; then check is called, if it is not nil, and
	// if it returns no error the values take their places. The host holds a sixteenth of its devices'
	// bytes on the way, or a single part that is larger. Meanwhile no step may be launched.
	Fill(ctx context.Context, variables []*strategy.Variable, from []lazy.Parts, readers int, check func(ctx context.Context) error) (staged int, err error)
}

var _ = inside.Of[machine]((*strategy.TPUStrategy)(nil))
