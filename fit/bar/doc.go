// Package bar shows the progress of a run of package fit: a bar that is redrawn on a terminal, and
// occasional lines elsewhere, for example in a log file.
//
//	result, err := fit.Run(ctx, step, data, fit.Options{Steps: 300}, bar.New(os.Stderr))
//
// The package is separate so that package fit does not depend on terminal code.
package bar
