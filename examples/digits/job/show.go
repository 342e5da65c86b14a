package job

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// inOrder assigns devices to replicas in the order of their ids.
func inOrder(topology tpu.Topology, replicas, logicalDevices int) (tpu.DeviceAssignment, error) {
	var all []tpu.Coordinates
	for _, task := range topology.DeviceCoordinates() {
		all = append(all, task...)
	}
	if len(all) < replicas*logicalDevices {
		return tpu.DeviceAssignment{}, invalid("assign devices", "lower -replicas or -logical", "%d replicas of %d logical devices on %d devices", replicas, logicalDevices, len(all))
	}
	cores := make([][]tpu.Coordinates, replicas)
	for r := range cores {
		cores[r] = all[r*logicalDevices : (r+1)*logicalDevices]
	}
	return tpu.NewDeviceAssignment(topology, cores)
}

// show prints what runs where.
func show(w io.Writer, strat *strategy.TPUStrategy, variables []*strategy.Variable, data Data, cfg Config) error {
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: strat.NumReplicasInSync()},
		sharding.Axis{Name: "logical", Size: strat.NumLogicalDevices()})
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	row("data\t%s: %d to train on, %d held out", data.Name, data.Train.Len(), data.Test.Len())
	row("plugin\t%s, %d devices", strat.System().Platform(), strat.System().Topology().NumDevices())
	row("mesh\t%s", mesh)
	row("batch\t%d, %d a replica; %d steps", cfg.Batch, cfg.Batch/cfg.Replicas, cfg.Steps)
	row("")
	for r, devices := range strat.DeviceAssignment().DeviceIDs() {
		row("replica %d\tdevices %v", r, devices)
	}
	row("")
	row("variable\tshape\tover a replica's devices\tbytes\tbytes/device")
	total, perDevice := 0, 0
	for _, v := range variables {
		bytes := int(v.Shape().ByteSize())
		total, perDevice = total+bytes, perDevice+v.BytesPerDevice()
		placement := v.Annotation().String()
		if placement == "none" {
			placement = "replicate"
		}
		row("%s\t%s\t%s\t%d\t%d", v.Path(), v.Shape(), placement, bytes, v.BytesPerDevice())
	}
	row("total\t\t\t%d\t%d", total, perDevice)
	row("")
	return out.Flush()
}
