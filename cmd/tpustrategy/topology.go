package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

type topologyCmd struct {
	Topology string `arg:"" help:"Slice, such as v5e:4x4, v5p-128 or \"2x v5e-256\"."`
	Plugin   string `help:"Path of libtpu. Default: the installed libtpu." type:"localpath"`
}

func (topologyCmd) Help() string {
	return `Describes a slice through libtpu: hosts, devices, coordinates, and the axes that are rings. Without libtpu it shows the layout that Cloud TPU documents.

Examples:
  tpustrategy topology v5e:4x4
  tpustrategy topology v5p-128 --json`
}

// describeRequest is a request to describe a slice with libtpu.
type describeRequest struct {
	Plugin string `json:"plugin"`
	Name   string `json:"name"`
}

// sliceDescription is the JSON output of the topology command.
type sliceDescription struct {
	Facts system.SliceInfo `json:"facts"`
	// Planned is true if the description contains the documented layout, because libtpu is not installed.
	Planned     bool                `json:"planned,omitempty"`
	Mesh        []int               `json:"mesh"`
	Coordinates [][]tpu.Coordinates `json:"coordinates"`
	IDs         [][]int             `json:"device_ids"`
}

func (d *sliceDescription) topology() (tpu.Topology, error) {
	return tpu.NewTopology(tpu.TopologyOptions{
		MeshShape: d.Mesh, DeviceCoordinates: d.Coordinates, DeviceIDs: d.IDs, Name: d.Facts.Name, Slices: d.Facts.Slices})
}

// describeInChild describes a slice with libtpu. It is called in a child process.
func describeInChild(ctx context.Context, r describeRequest) (*sliceDescription, error) {
	slice, err := ahead.Describe(ctx, r.Name, r.Plugin)
	if err != nil {
		return nil, err
	}
	defer slice.Close()
	t := slice.Topology()
	mesh := t.MeshShape()
	return &sliceDescription{Facts: slice.Info(), Mesh: mesh[:], Coordinates: t.DeviceCoordinates(), IDs: t.DeviceIDs()},
		nil
}

// describeSlice describes a slice with libtpu or, if libtpu is not installed, with the documented layout.
func (a *app) describeSlice(ctx context.Context, name, plugin string) (*sliceDescription, error) {
	kind := ahead.PluginKind(name)
	slices, accelerator, err := 0, tpu.Accelerator{}, system.CheckSliceName(name)
	if err == nil && kind == "tpu" {
		slices, accelerator, err = system.ParseSlices(name)
	}
	if err != nil {
		return nil, err
	}
	found, err := a.findPlugin(kind, plugin)
	var missing *pjrt.FindError
	switch {
	case errors.As(err, &missing) && plugin == "" && slices == 1 &&
		!strings.HasPrefix(missing.Tried[len(missing.Tried)-1].Source, "$"):
		// There is no libtpu. A variable with an invalid path is an error.
		return plannedDescription(accelerator)
	case err != nil:
		return nil, err
	}
	answer, err := a.runChild(ctx, "describing "+name, childRequest{Describe: &describeRequest{Plugin: found.Path,
		Name: name}}, child.Command{Env: a.quietEnviron()})
	if err != nil {
		return nil, err
	}
	return answer.Describe, nil
}

// plannedDescription describes a slice with the layout that Cloud TPU documents.
func plannedDescription(a tpu.Accelerator) (*sliceDescription, error) {
	t, err := a.Topology()
	if err != nil {
		return nil, err
	}
	mesh := t.MeshShape()
	g := a.Generation()
	d := &sliceDescription{Planned: true, Mesh: mesh[:], Coordinates: t.DeviceCoordinates(), IDs: t.DeviceIDs()}
	d.Facts = system.SliceInfo{
		Name: a.String(), Accelerator: a.Type(), Slices: 1, Kind: "TPU " + g.Name, Chips: a.Chips(), Hosts: a.Hosts(),
		Devices:        a.Devices(),
		DevicesPerChip: g.DevicesPerChip, HBMBytes: g.HBMBytes / int64(g.DevicesPerChip),
		PeakFLOPS:    g.PeakFLOPS / float64(g.DevicesPerChip),
		HBMBandwidth: g.HBMBandwidth / float64(g.DevicesPerChip), Wrap: system.CloudWraparound(a),
	}
	return d, nil
}

func (c *topologyCmd) Run(ctx context.Context, a *app, root *cli) error {
	d, err := a.describeSlice(ctx, c.Topology, c.Plugin)
	if err != nil {
		return err
	}
	if root.JSON {
		return a.printJSON(d)
	}
	t, err := d.topology()
	if err != nil {
		return err
	}
	f := d.Facts
	w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "%s\t%s\n", f.Name, f.Kind)
	fmt.Fprintf(w, "accelerator type\t%s\n", f.Accelerator)
	fmt.Fprintf(w, "chips\t%d\n", f.Chips)
	fmt.Fprintf(w, "devices\t%d, %d a chip\n", f.Devices, f.DevicesPerChip)
	if f.Slices > 1 {
		fmt.Fprintf(w, "slices\t%d, joined by the data-center network; a bar in the drawing is between two\n", f.Slices)
	}
	fmt.Fprintf(w, "hosts\t%d of %d devices\n", t.NumTasks(), t.NumTPUsPerTask())
	fmt.Fprintf(w, "mesh\t%dx%dx%d chips, %d devices each\n", d.Mesh[0], d.Mesh[1], d.Mesh[2], d.Mesh[3])
	fmt.Fprintf(w, "rings\t%s\n", ringAxes(f))
	fmt.Fprintf(w, "memory of a device\t%s\n", units.Bytes(f.HBMBytes))
	fmt.Fprintf(w, "peak of a device\t%.0f TFLOP/s in bfloat16\n", f.PeakFLOPS/1e12)
	if err := w.Flush(); err != nil {
		return err
	}
	if d.Planned {
		fmt.Fprintln(a.stdout,
			"\nlibtpu is not installed: this is the layout as planned; run `tpustrategy install tpu` to ask it")
	}
	fmt.Fprintln(a.stdout, "\ndevice ids, with their host")
	drawMesh(a.stdout, t, f.Wrap, f.Slices, func(at tpu.Coordinates) string {
		id, err := t.DeviceIDAtCoordinates(at)
		if err != nil {
			return "-"
		}
		if at[3] > 0 {
			return strconv.Itoa(id)
		}
		task, _ := t.TaskOfDevice(id)
		return fmt.Sprintf("h%d:%d", task, id)
	})
	return nil
}

// ringAxes returns the names of the axes whose ends are connected, such as "x, y", or "none".
func ringAxes(f system.SliceInfo) string {
	var axes []string
	for i, name := range []string{"x", "y", "z"} {
		if f.Wrap[i] {
			axes = append(axes, name)
		}
	}
	switch {
	case len(axes) == 0:
		return "none"
	case f.Twist:
		return strings.Join(axes, ", ") + ", twisted"
	}
	return strings.Join(axes, ", ")
}
