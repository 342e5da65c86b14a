// Package gomlxoverlay builds programs and tests of other modules with a GoMLX backend that they do
// not import. The modules are in the module cache and remain unchanged.
//
// The -overlay flag of the go command adds and replaces files of a build, but not in the module cache.
// Therefore Prepare writes a go.mod file that replaces the GoMLX module by a link to its directory in
// the cache, and an overlay for the files below that link:
//
//	o, err := gomlxoverlay.Prepare(ctx, dir, gomlxoverlay.Options{
//		Module: "internal/test/gomlxexamples",
//		Add:    map[string]string{"backends/default/tpustrategy.go": source},
//	})
//	exec.Command("go", append(append([]string{"build"}, o.Flags()...), packages...)...)
//
// Only files with edits are copied into dir. The package is for tests.
package gomlxoverlay
