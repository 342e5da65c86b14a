package logical

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/sharding"
)

const (
	// AxisName is the name of the one logical axis of a replica that names no axes.
	AxisName = "logical"
	// ReplicaName is the name of the mesh axis of the replicas. A split that lays out a variable
	// over all devices may name it; a split of one replica's tensor may not.
	ReplicaName = "replica"
)

// Mesh returns the mesh of a replica's logical devices: its named axes, the slowest first. Logical
// device i is at the row-major coordinates of i. Without axes the mesh has one axis, [AxisName].
// The sizes of the axes multiply to devices; devices 0 stands for their product, which is 1 without
// axes.
//
// Mesh refuses, with an [*Error], sizes that multiply to another number, a size below 1, and an
// axis whose name is empty, repeated, [ReplicaName], or has characters other than letters, digits,
// '_' and '-'.
func Mesh(devices int, axes ...sharding.Axis) (sharding.Mesh, error) {
	fail := func(err error, hint, format string, args ...any) (sharding.Mesh, error) {
		return sharding.Mesh{}, &Error{Op: "axes", Dim: -1, Devices: devices, Reason: fmt.Sprintf(format, args...), Hint: hint, Err: err}
	}
	if len(axes) == 0 {
		axes = []sharding.Axis{{Name: AxisName, Size: max(devices, 1)}}
	}
	for _, axis := range axes {
		switch {
		case axis.Name == ReplicaName:
			return fail(nil, "leave it out or name it otherwise", "axis %q is that of the replicas, and no axis of a replica", axis.Name)
		case strings.Contains(axis.Name, "."):
			return fail(nil, "use letters, digits, '_' and '-'", "axis %q has a dot in its name", axis.Name)
		}
	}
	mesh, err := sharding.NewMesh(axes...)
	if err != nil {
		return fail(err, "", "bad axes")
	}
	if devices != 0 && mesh.Size() != devices {
		return fail(nil, "let the sizes multiply to the number of logical devices",
			"%v make %d logical devices, and the replica has %d", mesh, mesh.Size(), devices)
	}
	return mesh, nil
}
