// Package gomlxsuite runs the tests that the GoMLX module ships, the files *_test.go of its folders
// core, ml and support, with this module's backend registered beside GoMLX's own, and compares what
// came of each test on each backend.
//
// Prepare writes the overlay that registers the backend, Build compiles one test program for each
// package, and Run runs it with GOMLX_BACKEND set:
//
//	s, err := gomlxsuite.Prepare(ctx, dir, "../../..", plugin)
//	err = s.Build(ctx, "ml/train")
//	results, err := s.Run(ctx, "ml/train", gomlxsuite.Backend{Name: "8x1", Config: "tpustrategy:devices=8"}, time.Minute)
//
// Nothing of GoMLX is copied or changed: the overlay adds a test file of one import to each package.
//
// `make test-gomlx` runs all packages on all backends and writes docs/gomlx-suites.md. A test that
// GoMLX's XLA backend passes, and ours does not, fails it, unless differences.tsv says why; so does
// a line of differences.tsv that no test is like.
package gomlxsuite
