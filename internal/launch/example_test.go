package launch_test

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/launch"
	"github.com/tpustrategy/tpustrategy/tpu"
)

func ExampleJob_Text() {
	slice, err := tpu.ParseAccelerator("v5litepod-16")
	if err != nil {
		fmt.Println(err)
		return
	}
	job := launch.Job{Slice: slice, On: launch.TPUVM, Program: "./examples/multihost", Arguments: []string{"-slice"}}
	script, err := job.Text(launch.Script)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(strings.Split(script, "\n")[1])

	job.On = launch.MIG
	_, err = job.Text(launch.Script)
	fmt.Println(err)
	// Output:
	// # Runs ./examples/multihost on v5litepod-16: 4 machines of 4 chips, from a node of the Cloud TPU API.
	// launch: --on: mig does not have v5e; take tpu-vm, queued or gke
}
