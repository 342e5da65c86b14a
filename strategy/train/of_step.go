package train

import (
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Strategy returns the strategy that the step runs on.
func (t *Step) Strategy() *strategy.TPUStrategy { return t.function.Strategy() }

// Store returns the store with the variables that the step trains.
func (t *Step) Store() *model.Store { return engine.Internal(t.function).Store() }

// Arguments returns how the batch's tensors are sharded over the logical devices: see
// [Options].Arguments.
func (t *Step) Arguments() []logical.Annotation {
	return engine.Internal(t.function).ArgumentAnnotations()
}

// Name returns the step's name, which errors and profiles contain.
func (t *Step) Name() string { return t.name }
