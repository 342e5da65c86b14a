// Package launch generates the files that run a program on a rented TPU slice: a shell script for
// gcloud, a Kubernetes manifest, and a Dockerfile. The package only generates text. It does not call
// a cloud, read the environment or open files.
//
//	slice, err := tpu.ParseAccelerator("v5litepod-16")
//	job := launch.Job{Slice: slice, On: launch.TPUVM, Program: "./examples/multihost"}
//	script, err := job.Text(launch.Script)
//
// A script sets its exit trap before it creates resources, records each resource before it creates
// it, and rejects a name that is in use. At its end it deletes all resources and verifies their
// deletion. If it cannot delete a resource, it prints the name and the command to delete it.
//
// [Machines] is the table of machine types of each generation, with its sources.
package launch
