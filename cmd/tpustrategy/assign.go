package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/tpustrategy/tpustrategy/tpu"
)

type assignCmd struct {
	Topology string `arg:"" help:"Slice, such as v5e:4x4 or v5p-128."`
	Shape    []int  `help:"Size of the block of cores of a replica in x, y, z and core." default:"1,1,1,1"`
	Stride   []int  `help:"Distance between the cores of a block in x, y, z and core."`
	Replicas int    `help:"Number of replicas. Default: as many as fit."`
	BySlice  bool   `help:"With several slices: place all logical devices of a replica on one slice."`
	Plugin   string `help:"Path of libtpu. Default: the installed libtpu." type:"localpath"`
}

func (assignCmd) Help() string {
	return `Shows which core is which logical device of which replica, with the algorithm of TensorFlow's device_assignment.

Examples:
  tpustrategy assign v3-8 --shape 1,1,1,2 --replicas 4
  tpustrategy assign v5e:4x4 --shape 2,2,1,1 --json
  tpustrategy assign "2x v5e:4x4" --shape 2,2,1,1 --by-slice`
}

// coreAssignment is the replica and the logical device of one TPU core, for the JSON output.
type coreAssignment struct {
	Replica     int             `json:"replica"`
	Logical     int             `json:"logical"`
	Partition   int             `json:"partition"`
	DeviceID    int             `json:"device_id"`
	Coordinates tpu.Coordinates `json:"coordinates"`
	Host        int             `json:"host"`
	Slice       int             `json:"slice"`
}

func (c *assignCmd) Run(ctx context.Context, a *app, root *cli) error {
	d, err := a.describeSlice(ctx, c.Topology, c.Plugin)
	if err != nil {
		return err
	}
	t, err := d.topology()
	if err != nil {
		return err
	}
	options := tpu.AssignmentOptions{ComputationShape: c.Shape, ComputationStride: c.Stride, BySlice: c.BySlice}
	replicas := c.Replicas
	switch {
	case replicas < 0:
		return usageErrorf("assign", "give a number from 1, or 0 for as many as fit", "--replicas %d", replicas)
	case replicas == 0:
		if replicas, err = options.MaxReplicas(t); err != nil {
			return assignmentError(err)
		}
	}
	options.Replicas = replicas
	assignment, err := tpu.BuildDeviceAssignment(t, options)
	if err != nil {
		return assignmentError(err)
	}
	var cores []coreAssignment
	at := map[tpu.Coordinates]string{}
	ids := assignment.DeviceIDs()
	for r, row := range assignment.CoreAssignment() {
		for p, coordinates := range row {
			host, err := assignment.Task(r, p)
			if err != nil {
				return err
			}
			cores = append(cores, coreAssignment{r, p, r*len(row) + p, ids[r][p], coordinates, host, t.SliceOf(coordinates)})
			at[coordinates] = fmt.Sprintf("r%d.%d", r, p)
		}
	}
	if root.JSON {
		return a.printJSON(map[string]any{
			"topology": d.Facts.Name, "planned": d.Planned, "replicas": assignment.NumReplicas(),
			"logical_devices": assignment.NumCoresPerReplica(), "cores": cores,
		})
	}
	fmt.Fprintf(a.stdout, "%s: %d replicas of %d logical devices, %d of %d devices in use\n\n",
		d.Facts.Name, assignment.NumReplicas(), assignment.NumCoresPerReplica(), len(cores), t.NumDevices())
	if spanning := assignment.ReplicasAcrossSlices(); len(spanning) > 0 {
		fmt.Fprintf(a.stdout, "%d replicas are on several slices, such as replica %d: the transfers between their logical "+
			"devices use the data-center network; --by-slice places each replica on one slice\n\n",
			len(spanning), spanning[0])
	}
	w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "replica\tlogical\tpartition\tdevice\t(x,y,z,core)\thost"+sliceColumn(t, "\tslice"))
	for _, core := range cores[:min(len(cores), maxListedCores)] {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%s\t%d%s\n", core.Replica, core.Logical, core.Partition, core.DeviceID,
			core.Coordinates, core.Host,
			sliceColumn(t, fmt.Sprintf("\t%d", core.Slice)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	writeOmitted(a.stdout, "cores (--json lists all)", len(cores)-maxListedCores)
	fmt.Fprintln(a.stdout, "\nreplica.logical of each core")
	drawMesh(a.stdout, t, d.Facts.Wrap, d.Facts.Slices, func(c tpu.Coordinates) string {
		if text, ok := at[c]; ok {
			return text
		}
		return "-"
	})
	return nil
}

// assignmentError adds the flag to change to an error for an invalid assignment.
func assignmentError(err error) error {
	var of *tpu.AssignmentError
	if errors.As(err, &of) {
		if flag, ok := map[string]string{"ComputationShape": "--shape", "ComputationStride": "--stride",
			"Replicas": "--replicas", "BySlice": "--by-slice"}[of.Option]; ok {
			return usageErrorf("assign: "+flag, of.Hint, "%s", of.Reason)
		}
	}
	return newUsageError("assign", err)
}

// sliceColumn returns text as a cell of the slice column, or "" if there is only one slice and the
// table therefore has no slice column.
func sliceColumn(t tpu.Topology, text string) string {
	if t.NumSlices() == 1 {
		return ""
	}
	return text
}

// maxListedCores is the maximum number of cores that the table lists.
const maxListedCores = 64
