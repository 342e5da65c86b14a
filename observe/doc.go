// Package observe holds what tells other systems of a run: package prom has metrics for Prometheus,
// package otel spans and metrics for OpenTelemetry, and package labels labels for Go's profiles.
//
// The module is one of its own, so that the packages that train depend on none of these systems:
//
//	go get github.com/tpustrategy/tpustrategy/observe
//
// Each package gives a hook for fit.Run, and, where it is of use, a function for
// strategy.Options.Phases, which hears of compilations:
//
//	seen := otel.New(otel.Options{})
//	strat, err := strategy.New(sys, strategy.Options{Replicas: 8, Phases: seen.Phase})
//	...
//	result, err := fit.Run(ctx, step, data, opts, seen.Hook(), labels.Hook("run", "today"))
//
// Every process of a job is told of, each with its number. Between the records of a run packages prom
// and otel take the time of what the loop does, twice a step, which costs well under a microsecond.
package observe
