package fit

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Evaluator accumulates metrics over batches. [*train.Evaluation] implements it.
type Evaluator interface {
	// MetricNames returns the names of the metrics.
	MetricNames() []string
	// Reset clears the accumulated metrics, Run adds a batch, and Results returns the metrics.
	Reset(ctx context.Context) error
	Run(ctx context.Context, batch ...any) error
	Results(ctx context.Context) ([]train.Reading, error)
}

// Evaluate evaluates the model on data after each step that is a multiple of every. It publishes
// each metric as name/metric, such as "held/loss" for the name "held". Other hooks can record the
// metrics, stop the run, or keep the best checkpoint. Evaluate corresponds to validation_data of
// Keras's Model.fit and to Model.evaluate.
//
// An evaluation waits for the launched steps. It is one pass over the data from the beginning; a
// [Dataset] has the same order each time. An incomplete last batch counts with its actual rows.
// With several processes, the replicas must divide the rows of each batch, or the options of the
// feed must specify padding. Data without batches is an error. A [Feed] is also an error, because
// it can be read only once.
func Evaluate(name string, e Evaluator, data Data, every Every) Hook {
	h := Hook{Name: "evaluate " + name, Every: every, metricPrefix: name}
	switch {
	case name == "":
		h.err = optionError("hook evaluate", `give one, such as "held"`, "no name for the metrics")
	case e == nil:
		h.err = optionError("hook "+h.Name, "make it with train.NewEvaluation", "no evaluation: a nil pointer")
	case every < 1:
		h.err = optionError("hook "+h.Name, "give at least 1", "an interval of %d steps", every)
	case data.open == nil:
		h.err = optionError("hook "+h.Name, "give Dataset, Distributed or Batches", "no data: the zero Data")
	case data.singlePass:
		h.err = optionError("hook "+h.Name, "give the dataset by Dataset", "a feed, which is one pass")
	}
	if h.err != nil {
		return h
	}
	for _, metric := range e.MetricNames() {
		h.Publishes = append(h.Publishes, name+"/"+metric)
	}
	h.Measure = func(ctx context.Context, s *State) (err error) {
		if err := e.Reset(ctx); err != nil {
			return err
		}
		if err := runEvaluation(ctx, s, e, data); err != nil {
			return err
		}
		all, err := e.Results(ctx)
		if err != nil {
			return err
		}
		for _, r := range all {
			if r.Weight != 0 {
				s.SetMetric(name+"/"+r.Name, r.Value)
			}
		}
		return nil
	}
	return h
}

func runEvaluation(ctx context.Context, s *State, e Evaluator, data Data) (err error) {
	p := openOptions{strategy: s.Strategy()}
	if e, ok := e.(interface{ Arguments() []logical.Annotation }); ok {
		p.arguments = e.Arguments()
	}
	if !s.runner.isMultiProcess() { // several processes need batches of one shape
		p.partial = feed.Uneven
	}
	source, err := data.open(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	if source.cardinality() == input.Infinite {
		return optionError("data", "limit it with Take", "the dataset is infinite")
	}
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		args, _, err := source.next(ctx)
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return &errkind.Fault{Op: "fit: evaluation", Reason: "the data has no batch", Class: errkind.OutOfRangeError,
				Hint: "check that a batch is not larger than the data"}
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("batch %d: %w", n, err)
		}
		if err := e.Run(ctx, args...); err != nil {
			return err
		}
	}
}
