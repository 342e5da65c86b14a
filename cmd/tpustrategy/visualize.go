package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/tpustrategy/tpustrategy/sharding"
)

type visualizeCmd struct {
	Spec    string `arg:"" help:"Sharding: the axes of each dimension, as in replica,-,logical; or Shardy's <@mesh, [...]>; or XLA's {devices=[2,2]0,1,2,3}."`
	Shape   []int  `help:"Shape of the tensor." required:""`
	Mesh    string `help:"Axes of the mesh, as in replica=2,logical=4. An XLA sharding has no mesh."`
	Devices int    `help:"Number of devices of an XLA sharding. Default: the devices in the sharding."`
	Slices  int    `help:"Number of slices, to show the devices of each slice. Replicas are ordered by slice." default:"1"`
	Dims    []int  `help:"Dimensions to draw: the vertical and the horizontal one."`
}

func (visualizeCmd) Help() string {
	return `Draws which devices hold which shard of a tensor.

Examples:
  tpustrategy visualize replica,logical --shape 8,16 --mesh replica=2,logical=4
  tpustrategy visualize -,a+b --shape 8,16 --mesh a=2,b=2
  tpustrategy visualize "{devices=[2,2]0,1,2,3}" --shape 8,16
  tpustrategy visualize replica,logical --shape 8,16 --mesh replica=4,logical=2 --slices 2

In a sharding, - is a dimension that is not sharded, and a+b is sharded over two axes. With --json the output lists the shard of each device.`
}

// visualizeAnswer is the JSON output of the visualize command.
type visualizeAnswer struct {
	// Split is the sharding, in the notation of this module or of XLA.
	Split   string        `json:"split"`
	Mesh    string        `json:"mesh,omitempty"`
	Shape   []int         `json:"shape"`
	Devices []deviceShard `json:"devices"`
}

// deviceShard is the shard of one device. Each range consists of the first index in a dimension and
// the index after the last one.
type deviceShard struct {
	Device int      `json:"device"`
	Slice  int      `json:"slice"`
	Ranges [][2]int `json:"ranges"`
}

func (c *visualizeCmd) Run(a *app, root *cli) error {
	l, err := c.parseLayout()
	switch {
	case err != nil:
		return err
	case c.Slices < 1 || c.Slices > 1 && l.mesh == "":
		return usageErrorf("visualize", "give a number from 1, with axes of a --mesh", "--slices %d", c.Slices)
	case l.devices%c.Slices != 0:
		return usageErrorf("visualize", "take a number that divides the devices", "%d slices cannot share %d devices equally",
			c.Slices, l.devices)
	}
	var picture bytes.Buffer
	if err := l.draw(&picture, sharding.VisualizeOptions{Dims: c.Dims}); err != nil {
		return &usageError{Err: err}
	}
	each := max(l.devices/c.Slices, 1) // devices are numbered by replica and logical device, and replicas by slice
	if !root.JSON {
		for slice := 0; slice < c.Slices && c.Slices > 1; slice++ {
			fmt.Fprintf(&picture, "slice %d: devices %d to %d\n", slice, slice*each, (slice+1)*each-1)
		}
		_, err := picture.WriteTo(a.stdout)
		return err
	}
	answer := visualizeAnswer{Split: l.split, Mesh: l.mesh, Shape: append([]int{}, c.Shape...), Devices: []deviceShard{}}
	for device := range l.devices {
		ranges, hasShard, err := l.ranges(device)
		if err != nil {
			return newUsageError("visualize", err)
		}
		h := deviceShard{Device: device, Slice: device / each, Ranges: [][2]int{}}
		for _, r := range ranges {
			h.Ranges = append(h.Ranges, [2]int{r.Start, r.Stop})
		}
		if hasShard {
			answer.Devices = append(answer.Devices, h)
		}
	}
	return a.printJSON(answer)
}

// layout is a sharding of a tensor over devices. mesh is the mesh in text form; it is empty for a
// sharding in XLA's notation.
type layout struct {
	split, mesh string
	devices     int
	ranges      func(device int) (ranges []sharding.Range, hasShard bool, err error)
	draw        func(io.Writer, sharding.VisualizeOptions) error
}

func (c *visualizeCmd) parseLayout() (*layout, error) {
	if strings.HasPrefix(c.Spec, "{") {
		op, err := sharding.ParseOpSharding(c.Spec)
		if err != nil {
			return nil, newUsageError("visualize", err)
		}
		l := &layout{split: op.String(), devices: c.Devices}
		if l.devices == 0 {
			l.devices = max(len(op.TileDevices()), op.Device()+1, 1)
		}
		l.ranges = func(device int) ([]sharding.Range, bool, error) { return op.IndexRanges(c.Shape, device) }
		l.draw = func(w io.Writer, o sharding.VisualizeOptions) error {
			return sharding.VisualizeOp(w, op, c.Shape, l.devices, o)
		}
		return l, nil
	}
	if c.Mesh == "" {
		return nil, usageErrorf("visualize", "give the mesh, as in --mesh replica=2,logical=4", "no mesh")
	}
	mesh, err := sharding.ParseMesh(c.Mesh)
	if err != nil {
		return nil, newUsageError("visualize: --mesh", err)
	}
	spec, err := parseSpec(c.Spec)
	if err == nil {
		err = spec.ValidateTensor(mesh, "", c.Shape)
	}
	if err != nil {
		return nil, newUsageError("visualize", err)
	}
	return &layout{split: spec.String(), mesh: mesh.String(), devices: mesh.Size(),
		ranges: func(device int) ([]sharding.Range, bool, error) {
			ranges, err := sharding.IndexRanges(mesh, spec, c.Shape, device)
			return ranges, true, err
		},
		draw: func(w io.Writer, o sharding.VisualizeOptions) error {
			return sharding.Visualize(w, mesh, spec, c.Shape, o)
		}}, nil
}

// parseSpec parses a sharding in this module's syntax, such as "replica,-,a+b", or in Shardy's syntax.
func parseSpec(text string) (spec sharding.Spec, err error) {
	if strings.Contains(text, "<@") {
		_, spec, err = sharding.ParseShardy(text)
	} else {
		spec, err = sharding.ParseSpec(text)
	}
	return spec, err
}
