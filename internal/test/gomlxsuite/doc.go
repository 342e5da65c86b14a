// Package gomlxsuite runs the tests of the GoMLX module on GoMLX's backends and on this module's
// backend, and compares the outcomes.
//
// Prepare writes an overlay that registers the backend. Build compiles one test program per package.
// Run sets GOMLX_BACKEND and runs a test program:
//
//	s, err := gomlxsuite.Prepare(ctx, dir, "../../..", plugin)
//	err = s.Build(ctx, "ml/train")
//	results, err := s.Run(ctx, "ml/train", gomlxsuite.Backend{Name: "8x1", Config: "tpustrategy:devices=8"}, time.Minute)
//
// The overlay only adds a test file with one import to each package of GoMLX.
//
// `make test-gomlx` runs all packages on all backends and writes docs/gomlx-suites.md. It fails if the
// outcome of a test differs from that of GoMLX's XLA backend and differences.tsv contains no reason,
// or if a line of differences.tsv matches no test.
package gomlxsuite
