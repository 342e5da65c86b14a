// Package otel has a run's spans and metrics for OpenTelemetry.
//
//	seen, err := otel.New(otel.Options{}) // the providers that are set for the process
//	strat, err := strategy.New(sys, strategy.Options{Phases: seen.Phase})
//	result, err := fit.Run(ctx, step, data, opts, seen.Hook())
//
// Spans: "train" is a run from its first step to its end, a child of the span of the run's context;
// "steps" are its children, one for the steps between two records, with what was measured after
// them as attributes, and the seconds of input, launch, result, exchange, save and the other
// activities of package watchdog, as tpustrategy.seconds.input and so on. "save" and "restore" are
// children of "train" too, and so are "input", "launch" and the others that last longer than
// Options.Shortest. The span of a save in the background is the time that the step waits for it.
// "train" says by tpustrategy.result how the run ended: done, interrupted, stuck (by a watchdog) or
// failed. "tracing", "lowering" and "compiling" are the stages in the making of a
// program, which are children of the span in Options.Parent. A span of what failed has the error.
//
// Metrics: tpustrategy.steps and tpustrategy.rows (counters), tpustrategy.step (gauge),
// tpustrategy.step.duration (histogram, seconds a step, the mean between two records) and
// tpustrategy.metric (gauge, with the attribute name).
//
// All have the attribute tpustrategy.process, the number of the process from 0. They are made at
// the records of a run (fit.Options.Every), not between.
package otel
