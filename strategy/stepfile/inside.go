package stepfile

import (
	"context"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// The internal API of package strategy that this package uses.

var (
	_ = inside.Of[machine]((*strategy.TPUStrategy)(nil))
	_ = inside.Of[function]((*strategy.Function)(nil))
	_ = inside.Of[parts]((*strategy.CompiledStep)(nil))
)

// machine is the internal API of a strategy.
type machine interface {
	// Usable returns an error inside a traced step function, for a strategy without devices, and
	// for a closed strategy.
	Usable(ctx context.Context, op string) error
	// Target returns the target for which the strategy compiles.
	Target(fail saved.Fail) (saved.Target, error)
	// Accumulator creates the variable of the scope in which a function accumulates n metrics.
	Accumulator(name string, n int) (*strategy.Variable, error)
	// Live returns an error for a variable that is closed or belongs to another strategy.
	Live(v *strategy.Variable) error
	// Load loads a saved step onto the devices. It uses the variables of a store and the
	// distributed variables, which are given by argument.
	Load(ctx context.Context, store *model.Store, step *saved.Step, distributed []*strategy.Variable, fail saved.Fail) (*strategy.Function, error)
}

// function is the internal API of a function. It sets the metrics that the function accumulates.
type function interface {
	SetMetrics(of saved.Metrics, state *strategy.Variable, owns bool)
}

// parts is the internal API of a compiled step. It returns the parts that are saved.
type parts interface {
	Parts(ctx context.Context, fail saved.Fail) (*saved.Step, error)
}
