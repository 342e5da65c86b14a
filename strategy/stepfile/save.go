package stepfile

import (
	"context"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Save writes a compiled step to w. [Load] reads the step in another process, on the same kind of
// devices with the same plugin build. Save also supports steps that were compiled ahead of time. It
// corresponds to tf.saved_model.save, but does not use the SavedModel format. The file contains the
// tensors that the step closes over, and names and descriptions of its store variables and
// distributed variables. It does not contain values of variables, which belong to checkpoints.
//
// A loop of steps (see [strategy.StackedBatches]) is saved with its number of steps. A step that
// strategy.Options.Compiler found in a cache is compiled once more, because a program from a cache
// cannot be serialized (pjrt.ErrDeserialized). ctx limits this compilation.
//
// Save returns an [*Error] with [Variable] if two distributed variables of the step have the same
// name, an [*Error] with [Unsupported] if the runtime has no program to save, a *pjrt.Error if the
// plugin cannot serialize, and the errors of w.
func Save(ctx context.Context, w io.Writer, compiled *strategy.CompiledStep) error {
	if err := strategy.RefuseTracing(ctx, "saving a step", "save it outside of a step"); err != nil {
		return err
	}
	if compiled == nil {
		return &Error{Reason: Unsupported, Detail: "there is no compiled step: it is nil",
			Hint: "give the result of Compiled"}
	}
	step, err := engine.Internal(compiled).SavedStep(ctx, newError)
	if err != nil {
		return err
	}
	program := step.Code
	for _, a := range step.Arguments {
		program = append(program[:len(program):len(program)], a.Constant...)
	}
	data, err := encode(newHeader(step), step.Module.Text, program)
	if err == nil {
		_, err = w.Write(data)
	}
	if err != nil {
		return &errkind.Fault{Op: "stepfile: save", Subject: compiled.Name, Err: err}
	}
	return nil
}
