package ahead

import (
	"context"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
)

// Step can be compiled ahead of time: a training step, or a function of a strategy.
type Step interface {
	Compiled(ctx context.Context, args ...any) (*strategy.CompiledStep, error)
}

// Outputs specifies the files that [Compile] writes and an optional analysis. If a file name is
// empty, the file is not written.
type Outputs struct {
	// Text is the step's StableHLO, and Save the compiled step.
	Text, Save string
	// SuggestAnnotations also compiles the step with other annotations. Progress is called with
	// texts about that analysis.
	SuggestAnnotations bool
	Progress           func(text string)
}

// Compile compiles a step and writes the files.
func Compile(ctx context.Context, step Step, args []any, outputs Outputs) (*report.Report, error) {
	compiled, err := step.Compiled(ctx, args...)
	if err != nil {
		return nil, err
	}
	if outputs.Text != "" {
		err := WriteFile(outputs.Text, func(w io.Writer) error {
			_, err := w.Write(compiled.Module.Text)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if outputs.Save != "" {
		if err := WriteFile(outputs.Save, func(w io.Writer) error { return stepfile.Save(ctx, w, compiled) }); err != nil {
			return nil, err
		}
	}
	r, err := report.Of(compiled)
	if err != nil || !outputs.SuggestAnnotations {
		return r, err
	}
	told := func(tried, of int) {
		outputs.Progress(fmt.Sprintf("trying other annotations: %d of at most %d", tried, of))
	}
	r.AnnotationSuggestions, err = report.SuggestAnnotations(ctx, compiled, report.AnnotationOptions{Target: r.Target,
		Progress: told})
	if err != nil && ctx.Err() == nil {
		r.Notes = append(r.Notes, "no other annotations were tried: "+err.Error())
		return r, nil
	}
	return r, err
}
