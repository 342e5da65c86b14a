// Package prom provides metrics of a run for Prometheus.
//
//	seen, err := prom.New(prometheus.DefaultRegisterer, prom.Options{})
//	strat, err := strategy.New(sys, strategy.Options{Phases: seen.Phase})
//	http.Handle("/metrics", promhttp.Handler())
//	result, err := fit.Run(ctx, step, data, opts, seen.Hook())
//
// All metrics have the label process, the number of the process from 0:
//
//	tpustrategy_step                     gauge: steps taken, also before a resume
//	tpustrategy_steps_total              counter: steps taken by this process's run
//	tpustrategy_rows_total               counter: rows of the batches, on all replicas
//	tpustrategy_step_seconds             gauge: seconds a step between the last two records
//	tpustrategy_metric{name}             gauge: what was measured last, such as loss, held/loss
//	                                     or, of the hook fit.Goodput, goodput and mfu
//	tpustrategy_running                  gauge: 1 while a run is under way
//	tpustrategy_runs_total{result}       counter: runs that ended, "done", "interrupted", "stuck" or "failed"
//	tpustrategy_activity_seconds_total{activity}  counter: seconds of input, launch, result, exchange,
//	                                     save, restore, hook and setup, see package watchdog
//	tpustrategy_activities_total{activity}  counter: how often a run turned to each
//	tpustrategy_making_seconds{stage}    histogram: tracing, lowering and compiling of programs
//	tpustrategy_programs_total{result}   counter: programs that were made, "done" or "failed"
//
// The metrics of activities are updated continuously, the others at the records of a run
// (fit.Options.Every).
package prom
