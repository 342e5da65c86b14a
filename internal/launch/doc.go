// Package launch writes what rents a TPU slice, runs a program on it and gives it back: a shell
// script for gcloud, a manifest for Kubernetes, a Dockerfile. It is text from values: nothing here
// calls a cloud, reads the environment or opens a file.
//
//	slice, err := tpu.ParseAccelerator("v5litepod-16")
//	job := launch.Job{Slice: slice, On: launch.TPUVM, Program: "./examples/multihost"}
//	script, err := job.Text(launch.Script)
//
// A script sets its trap before it makes anything, notes what it is about to make before it does,
// refuses a name that is taken, and at its end deletes what it made and looks whether it is gone.
// What it could not delete it names, with the command that does.
//
// [Machines] is the table of what there is for each generation, with its sources.
package launch
