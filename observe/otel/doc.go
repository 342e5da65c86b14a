// Package otel provides spans and metrics of a run for OpenTelemetry.
//
//	observer, err := otel.New(otel.Options{}) // the providers that are set for the process
//	strat, err := strategy.New(sys, strategy.Options{Phases: observer.Phase})
//	result, err := fit.Run(ctx, step, data, opts, observer.Hook())
//
// Spans: "train" covers a run from its first step to its end; it is a child of the span of the
// run's context. Its attribute tpustrategy.result is done, interrupted, stuck (by a watchdog) or
// failed. Each child "steps" covers the steps between two records. Its attributes are the metrics
// of the record and the seconds of each activity of package watchdog, such as
// tpustrategy.seconds.input. Further children are "save" and "restore", and other activities, such
// as "input" and "launch", that last longer than Options.MinSpanDuration. The span of a background
// save covers the time that the step waits for it. "tracing", "lowering" and "compiling" are the
// stages of building a program; they are children of the span in Options.Parent. The span of a
// failed operation records the error.
//
// Metrics: tpustrategy.steps and tpustrategy.rows (counters), tpustrategy.step (gauge),
// tpustrategy.step.duration (histogram, seconds a step, the mean between two records) and
// tpustrategy.metric (gauge, with the attribute name).
//
// All have the attribute tpustrategy.process, the number of the process from 0. Metrics are
// recorded at the records of a run (fit.Options.Every).
package otel
