package main

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/sharding"
)

type visualizeCmd struct {
	Spec    string `arg:"" help:"A sharding: the axes of each dimension, as in replica,-,logical; or Shardy's <@mesh, [...]>; or XLA's {devices=[2,2]0,1,2,3}."`
	Shape   []int  `help:"Shape of the tensor." required:""`
	Mesh    string `help:"Axes of the mesh, as in replica=2,logical=4. An XLA sharding needs none."`
	Devices int    `help:"Number of devices of an XLA sharding; 0 takes those that it names."`
	Slices  int    `help:"Say which devices are on which of so many slices, where replicas are slice by slice." default:"1"`
	Dims    []int  `help:"The dimensions to draw, down and across."`
}

// Help is the text under --help.
func (visualizeCmd) Help() string {
	return `Draws which devices hold which part of a tensor.

Examples:
  tpustrategy visualize replica,logical --shape 8,16 --mesh replica=2,logical=4
  tpustrategy visualize -,a+b --shape 8,16 --mesh a=2,b=2
  tpustrategy visualize "{devices=[2,2]0,1,2,3}" --shape 8,16
  tpustrategy visualize replica,logical --shape 8,16 --mesh replica=4,logical=2 --slices 2

A dimension that is not split is -, one that is split over two axes is a+b.`
}

// Run draws the sharding.
func (c *visualizeCmd) Run(a *app, root *cli) error {
	if root.JSON {
		return misused("visualize", "leave out --json; sharding.BytesPerDevice gives figures", "a drawing has no JSON form")
	}
	if c.Slices < 1 || c.Slices > 1 && (c.Mesh == "" || strings.HasPrefix(c.Spec, "{")) {
		return misused("visualize", "give a number from 1, with axes of a --mesh", "--slices %d", c.Slices)
	}
	options := sharding.VisualizeOptions{Dims: c.Dims}
	if strings.HasPrefix(c.Spec, "{") {
		op, err := sharding.ParseOpSharding(c.Spec)
		if err != nil {
			return refused("visualize", err)
		}
		devices := c.Devices
		if devices == 0 {
			devices = max(len(op.TileDevices()), op.Device()+1, 1)
		}
		if err := sharding.VisualizeOp(a.stdout, op, c.Shape, devices, options); err != nil {
			return &usageError{Err: err}
		}
		return nil
	}
	if c.Mesh == "" {
		return misused("visualize", "give the mesh, as in --mesh replica=2,logical=4", "no mesh")
	}
	mesh, err := sharding.ParseMesh(c.Mesh)
	if err != nil {
		return refused("visualize: --mesh", err)
	}
	spec, err := parseSpec(c.Spec)
	if err != nil {
		return refused("visualize", err)
	}
	if err := spec.ValidateTensor(mesh, "", c.Shape); err != nil {
		return refused("visualize", err)
	}
	if mesh.Size()%c.Slices != 0 {
		return misused("visualize", "take a number that divides the devices", "%d slices cannot share %d devices equally", c.Slices, mesh.Size())
	}
	if err := sharding.Visualize(a.stdout, mesh, spec, c.Shape, options); err != nil {
		return &usageError{Err: err}
	}
	if c.Slices > 1 { // devices are numbered by replica and logical device, and replicas by slice
		each := mesh.Size() / c.Slices
		for slice := range c.Slices {
			if _, err := fmt.Fprintf(a.stdout, "slice %d: devices %d to %d\n", slice, slice*each, (slice+1)*each-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseSpec reads replica,-,a+b, or Shardy's text.
func parseSpec(text string) (spec sharding.Spec, err error) {
	if strings.Contains(text, "<@") {
		_, spec, err = sharding.ParseShardy(text)
	} else {
		spec, err = sharding.ParseSpec(text)
	}
	return spec, err
}
