package stepfile

import (
	"context"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// What this package uses of package strategy beside its contract.

var (
	_ = inside.Of[machine]((*strategy.TPUStrategy)(nil))
	_ = inside.Of[function]((*strategy.Function)(nil))
	_ = inside.Of[parts]((*strategy.CompiledStep)(nil))
)

// machine is the inner face of a strategy.
type machine interface {
	// Usable refuses an operation that needs devices, and the code of a step: ahead of time, and once
	// the strategy is closed.
	Usable(ctx context.Context, op string) error
	// Target is what the strategy compiles for.
	Target(fail saved.Fail) (saved.Target, error)
	// Accumulator makes the variable of the scope in which a function accumulates n metrics.
	Accumulator(name string, n int) (*strategy.Variable, error)
	// Live refuses a variable of another strategy, and one that was closed.
	Live(v *strategy.Variable) error
	// Load puts a step that was taken apart on the devices, over the variables of a store and its
	// distributed variables, which are given by argument.
	Load(ctx context.Context, store *model.Store, step *saved.Step, distributed []*strategy.Variable, fail saved.Fail) (*strategy.Function, error)
}

// function is the inner face of a function: it says which metrics the function accumulates.
type function interface {
	SetMetrics(of saved.Metrics, state *strategy.Variable, owns bool)
}

// parts is the inner face of a compiled step: it takes the step apart.
type parts interface {
	Parts(ctx context.Context, fail saved.Fail) (*saved.Step, error)
}
