package generate

import (
	"context"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Programs are the compiled programs of a generator.
type Programs struct {
	// Prefill reads a chunk of the prompts into the cache, and Decode generates tokens. In their
	// reports, the arguments "generate/keys" and "generate/values" are the cache.
	Prefill, Decode *strategy.CompiledStep
}

// Compiled compiles the programs for the given kind of sampling without running them. s.MaxTokens
// is not required. A later Generate uses the same programs. With a strategy that compiles ahead of
// time, Options.BatchSize is required. Compiled creates the model's variables in the store, so that
// a checkpoint can be restored before the first Generate.
//
// The errors are those of [Generator.Generate] and [*strategy.MemoryError].
func (g *Generator) Compiled(ctx context.Context, s Sampling) (*Programs, error) {
	if err := strategy.RefuseTracing(ctx, "compiling a generator", "call it outside of the step"); err != nil {
		return nil, err
	}
	if err := s.validate(&g.opts); err != nil {
		return nil, err
	}
	if g.opts.BatchSize == 0 && g.state == nil {
		return nil, valueError("Options.BatchSize", "set it: there are no prompts to count", "it is 0")
	}
	leave, err := g.lockState(ctx, g.opts.BatchSize)
	if err != nil {
		return nil, err
	}
	defer leave()
	c := &Programs{}
	rows := g.state.rows * g.strategy.NumReplicasInSync()
	args := []any{ // the arguments of prefillStep without the slot
		shapes.Make(dtypes.Int32, rows, g.state.opts.PromptTokensPerLaunch), shapes.Make(dtypes.Int32, rows,
			3), shapes.Make(dtypes.Uint32, rows, 2),
		shapes.Make(dtypes.Float32, rows, 3),
	}
	for _, shape := range []shapes.Shape{shapes.Make(dtypes.Bool, g.opts.Vocabulary), shapes.Make(dtypes.Int32)} {
		v, err := engine.Internal(g.strategy).NewAbstractValue(shape)
		if err != nil {
			return nil, err
		}
		defer v.Close()
		args = append(args, v)
	}
	if c.Prefill, err = g.prefillFunction.Compiled(ctx, args...); err != nil {
		return nil, err
	}
	if c.Decode, err = g.decodeProgramFor(s.variant()).function.Compiled(ctx); err != nil {
		return nil, err
	}
	return c, nil
}
