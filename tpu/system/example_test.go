package system_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Eight CPU devices represent a slice of four chips with two cores each.
func ExampleOpen() {
	sys, err := system.Open(context.Background(), system.Options{CPUDevices: 8, MeshShape: []int{2, 2, 1, 2}})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	assignment, err := tpu.BuildDeviceAssignment(sys.Topology(), tpu.AssignmentOptions{ComputationShape: []int{1, 1, 1, 2},
		Replicas: 4})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sys.Platform(), assignment.NumReplicas(), "replicas of", assignment.NumCoresPerReplica())
	// Output: cpu 4 replicas of 2
}
