package stepfile

import (
	"context"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Save writes a compiled step, for [Load] in another process, on the same kind of devices with the
// same plugin build, for example a step that was compiled ahead of time. It has the place of
// tf.saved_model.save, and is no SavedModel. The file contains the tensors that the step closes over, but
// no values of variables, which belong to checkpoints; it names the variables, those of the store and distributed ones, and describes them.
// A loop of steps (see [strategy.BatchStack]) is saved with its number of steps. A step that
// strategy.Options.Compiler found in a cache is compiled once more, because a program from a cache
// cannot be written out again (pjrt.ErrDeserialized); ctx bounds that.
//
// Errors: [*Error] with [Variable] if two distributed variables of the step have one name, with
// [Unsupported] if the runtime has no program to save; *pjrt.Error if the plugin cannot serialize;
// those of w.
func Save(ctx context.Context, w io.Writer, compiled *strategy.CompiledStep) error {
	if err := strategy.RefuseTracing(ctx, "saving a step", "save it outside of a step"); err != nil {
		return err
	}
	if compiled == nil {
		return &Error{Reason: Unsupported, Detail: "there is no compiled step: it is nil", Hint: "give the result of Compiled"}
	}
	step, err := inside.Of[parts](compiled).Parts(ctx, fail)
	if err != nil {
		return err
	}
	program := step.Code
	for _, a := range step.Arguments {
		program = append(program[:len(program):len(program)], a.Constant...)
	}
	data, err := encode(headerOf(step), step.Module.Text, program)
	if err == nil {
		_, err = w.Write(data)
	}
	if err != nil {
		return &errkind.Fault{Op: "stepfile: save", Subject: compiled.Name, Err: err}
	}
	return nil
}
