// Package prom provides metrics of a run for Prometheus.
//
//	metrics, err := prom.New(prometheus.DefaultRegisterer, prom.Options{})
//	strat, err := strategy.New(sys, strategy.Options{Phases: metrics.Phase})
//	http.Handle("/metrics", promhttp.Handler())
//	result, err := fit.Run(ctx, step, data, opts, metrics.Hook())
//
// All metrics have the label process, the number of the process from 0:
//
//	tpustrategy_step                     gauge: number of steps, including steps before a resume
//	tpustrategy_steps_total              counter: steps that the runs of this process executed
//	tpustrategy_rows_total               counter: rows of the batches, on all replicas
//	tpustrategy_step_seconds             gauge: mean duration of a step between the last two records
//	tpustrategy_metric{name}             gauge: last value of a metric, such as loss, held/loss
//	                                     or, with the hook fit.Goodput, goodput and mfu
//	tpustrategy_running                  gauge: 1 during a run, otherwise 0
//	tpustrategy_runs_total{result}       counter: finished runs, "done", "interrupted", "stuck" or "failed"
//	tpustrategy_activity_seconds_total{activity}  counter: seconds of input, launch, result, exchange,
//	                                     save, restore, hook and setup, see package watchdog
//	tpustrategy_activities_total{activity}  counter: how often a run started each activity
//	tpustrategy_making_seconds{stage}    histogram: tracing, lowering and compiling of programs
//	tpustrategy_programs_total{result}   counter: compiled programs, "done" or "failed"
//
// The metrics of activities are updated continuously, the others at the records of a run
// (fit.Options.Every).
package prom
