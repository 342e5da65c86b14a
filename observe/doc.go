// Package observe contains integrations of a run with monitoring systems: metrics for Prometheus
// (package prom), spans and metrics for OpenTelemetry (package otel), and labels for Go's profiles
// (package labels).
//
// It is a separate module, so that the training packages do not depend on these systems:
//
//	go get github.com/tpustrategy/tpustrategy/observe
//
// Each package provides a hook for fit.Run. Packages prom and otel also provide a function for
// strategy.Options.Phases, which observes compilations:
//
//	observer, err := otel.New(otel.Options{})
//	strat, err := strategy.New(sys, strategy.Options{Replicas: 8, Phases: observer.Phase})
//	...
//	result, err := fit.Run(ctx, step, data, opts, observer.Hook(), labels.Hook("run", "today"))
//
// Every process of a job is observed, with its process number. Packages prom and otel also measure
// the activities of the training loop, with two time measurements per step that cost well under a
// microsecond.
package observe
