// Package bar shows the progress of a run of package fit: a bar that redraws itself on a terminal,
// and a line now and then elsewhere, as in a log file.
//
//	result, err := fit.Run(ctx, step, data, fit.Options{Steps: 300}, bar.New(os.Stderr))
//
// It is a package of its own so that package fit does without what draws on terminals.
package bar
