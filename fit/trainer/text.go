package trainer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/plain"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/lm/text"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// BitsPerByteHooks returns hooks that evaluate a language model on held-out texts after each step
// that is a multiple of every. They publish "held/nats", the mean loss of the predicted tokens, and
// "held/bits_per_byte", which is comparable between tokenizers.
//
// batch is the number of windows of text that the model reads in each step of the evaluation, and
// length is the number of tokens of a window. The arguments of the loss function are the tokens,
// int32 [rows, length+1], and the weights of the predicted tokens, float32 [rows, length]. The loss
// function must report the losses with these weights as the metric [NatsMetric]. The hooks can be
// used for one run only, because the end of the run closes the evaluation.
func BitsPerByteHooks(step *train.Step, loss train.Loss, held *text.Tokens, length, batch int, every fit.Every,
	opts train.Options) ([]fit.Hook, error) {
	windows, err := held.EvalWindows(length, batch)
	if err != nil {
		return nil, err
	}
	opts.Metrics = append(opts.Metrics[:len(opts.Metrics):len(opts.Metrics)], train.Reported(NatsMetric))
	evaluation, err := train.NewEvaluation(step.Strategy(), step.Store(), loss, opts)
	if err != nil {
		return nil, err
	}
	return []fit.Hook{fit.Evaluate("held", evaluation, fit.Dataset(windows.Batch(batch, true)), every), {
		Name: "bits per byte", Every: every, Publishes: []string{"held/bits_per_byte"},
		Measure: func(_ context.Context, s *fit.State) error {
			if nats, ok := s.Value("held/" + NatsMetric); ok {
				s.SetMetric("held/bits_per_byte", held.BitsPerByte(nats*float64(held.Targets())))
			}
			return nil
		},
		End: func(context.Context, *fit.State, error) error { return evaluation.Close() },
	}}, nil
}

// NatsMetric is the name of the metric with which a loss function reports the losses of tokens to
// [BitsPerByteHooks].
const NatsMetric = "nats"

// SampleHooks returns hooks that let a language model continue a prompt. After each step that is a
// multiple of every, they print a short sample above the progress bar. At the end of the run they
// write a continuation to w, up to o.MaxLength tokens or the end of the text. Tokens are sampled
// from the 50 most likely tokens at a temperature of 0.7; package generate supports other settings.
// If prompt is empty, there are no hooks.
func (f *Flags) SampleHooks(step *train.Step, m generate.ModelFunc, o generate.Options, words text.Tokenizer,
	prompt string, every fit.Every, w io.Writer) []fit.Hook {
	if prompt == "" {
		return nil
	}
	var g *generate.Generator
	tokens := words.Append(nil, []byte(prompt))
	write := func(ctx context.Context, maxTokens int, w io.Writer) error {
		_, begun := fmt.Fprint(w, prompt)
		_, err := g.Generate(ctx, [][]int32{tokens}, generate.Sampling{
			MaxTokens: maxTokens, Temperature: 0.7, TopK: 50, Seed: 1, Stop: []int32{words.Separator()},
			Stream: func(_ int, tokens []int32) error {
				more, err := words.AppendText(nil, tokens)
				if err == nil {
					_, err = w.Write(more)
				}
				return err
			},
		})
		_, ended := fmt.Fprintln(w)
		return errors.Join(err, begun, ended)
	}
	return []fit.Hook{{Name: "sample", Every: every,
		Begin: func(context.Context, *fit.State) (err error) {
			g, err = generate.New(step.Strategy(), step.Store(), m, o)
			return err
		},
		Measure: func(ctx context.Context, s *fit.State) error {
			if s.Step() == s.TotalSteps() { // End writes a longer sample
				return nil
			}
			var sample bytes.Buffer
			err := write(ctx, min(o.MaxLength-len(tokens), 32), &sample)
			if err == nil && s.IsChief() {
				_, err = fmt.Fprintf(f.line, "after step %d: %s", s.Step(), plain.EscapeText(sample.String()))
			}
			return err
		},
		End: func(ctx context.Context, s *fit.State, err error) error {
			if !s.IsChief() {
				w = io.Discard
			}
			if err == nil {
				err = write(ctx, o.MaxLength-len(tokens), w)
			}
			return errors.Join(err, g.Close())
		},
	}}
}

// TextResult is the result of training a language model. Programs print it as JSON in their last
// line.
type TextResult struct {
	// BitsPerByte is the last held-out value, and Loss is the last loss that was read. Each is nil
	// if there is no value, for example after an early interrupt.
	BitsPerByte     *float64 `json:"bits_per_byte"`
	Loss            *float64 `json:"loss"`
	TokensPerSecond float64  `json:"tokens_per_second"`
	Parameters      int      `json:"parameters"`
	// Steps is the number of steps of the whole run, and Resumed is the number of steps of earlier
	// runs. Seconds is the time of this run.
	Steps   int64   `json:"steps"`
	Resumed int64   `json:"resumed,omitempty"`
	Seconds float64 `json:"seconds"`
	// Stopped is the reason why the run ended early, or why a resumed run had no step left; see
	// fit.Result.
	Stopped string `json:"stopped,omitempty"`
}

// WriteTextResult writes the [TextResult] of a run as one line of JSON. tokens is the number of
// tokens of a row, and parameters is the number of parameters of the model.
func WriteTextResult(w io.Writer, r fit.Result, tokens, parameters int) error {
	o := TextResult{Parameters: parameters, Steps: r.Step, Resumed: r.ResumedFrom, Seconds: r.Seconds,
		Stopped: r.StopReason}
	for i, m := range r.Metrics {
		switch m.Name {
		case fit.Loss:
			o.Loss = &r.Metrics[i].Value
		case "held/bits_per_byte":
			o.BitsPerByte = &r.Metrics[i].Value
		}
	}
	if r.TrainSeconds > 0 {
		o.TokensPerSecond = float64(r.Rows) * float64(tokens) / r.TrainSeconds
	}
	line, err := json.Marshal(o)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", line)
	}
	return err
}
