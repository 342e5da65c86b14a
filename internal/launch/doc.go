// Package launch generates the files that run a program on a rented TPU slice: a shell script for
// gcloud, a Kubernetes manifest, and a Dockerfile. The package only generates text. It does not
// call a cloud API, read the environment or open files.
//
//	slice, err := tpu.ParseAccelerator("v5litepod-16")
//	job := launch.Job{Slice: slice, On: launch.TPUVM, Program: "./examples/multihost"}
//	script, err := job.Text(launch.Script)
//
// A script rejects a name that is in use. It sets an exit trap before it creates resources, and
// records each resource before it creates the resource. When the script exits, it deletes all
// resources and verifies their deletion. If it cannot delete a resource, it prints the name and the
// command to delete the resource.
//
// [Machines] describes the machine types of each TPU generation and lists the sources of the data.
package launch
