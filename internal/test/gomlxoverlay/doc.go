// Package gomlxoverlay builds programs and tests that other modules ship, from the module cache,
// with a backend registered in GoMLX that they do not import.
//
// Go's -overlay adds and replaces files of a build without touching them, but refuses files of the
// module cache. Prepare therefore writes a go.mod that replaces the GoMLX module by a link to its
// own directory in the cache, and an overlay of the files behind that link:
//
//	o, err := gomlxoverlay.Prepare(ctx, dir, gomlxoverlay.Options{
//		Module: "internal/test/gomlxexamples",
//		Add:    map[string]string{"backends/default/tpustrategy.go": source},
//	})
//	exec.Command("go", append(append([]string{"build"}, o.Flags()...), packages...)...)
//
// Nothing of GoMLX is copied: what Edits change is read, changed in one place each, and written into
// dir. It serves tests; nothing of it is part of the module's interface.
package gomlxoverlay
