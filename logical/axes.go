package logical

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/sharding"
)

const (
	// LogicalAxis is the name of the only logical axis of a replica without named axes.
	LogicalAxis = "logical"
	// ReplicaAxis is the name of the mesh axis of the replicas. The annotation of a variable over
	// all devices can split over this axis. The annotation of a tensor within a replica cannot.
	ReplicaAxis = "replica"
)

// NewMesh returns the mesh of a replica's logical devices with the given axes, slowest first.
// Logical device i has the row-major coordinates of i. Without axes, the mesh has the single axis
// [LogicalAxis]. If devices is 0, the number of devices is the product of the axis sizes.
//
// NewMesh returns an [*Error] if the product of the sizes is not devices, if a size is below 1, or
// if an axis name is empty, repeated, equal to [ReplicaAxis], or contains characters other than
// letters, digits, '_' and '-'.
func NewMesh(devices int, axes ...sharding.Axis) (sharding.Mesh, error) {
	fail := func(err error, hint, format string, args ...any) (sharding.Mesh, error) {
		return sharding.Mesh{}, &Error{Op: "axes", Dim: -1, Devices: devices,
			Reason: fmt.Sprintf(format, args...), Hint: hint, Err: err}
	}
	if len(axes) == 0 {
		axes = []sharding.Axis{{Name: LogicalAxis, Size: max(devices, 1)}}
	}
	for _, axis := range axes {
		switch {
		case axis.Name == ReplicaAxis:
			return fail(nil, "remove or rename the axis", "axis name %q is reserved for the replicas", axis.Name)
		case strings.Contains(axis.Name, "."):
			return fail(nil, "use letters, digits, '_' and '-'", "axis %q has a dot in its name", axis.Name)
		}
	}
	mesh, err := sharding.NewMesh(axes...)
	if err != nil {
		return fail(err, "", "invalid axes")
	}
	if devices != 0 && mesh.Size() != devices {
		return fail(nil, "the product of the axis sizes must be the number of logical devices",
			"the axes %v have %d devices, but a replica has %d", mesh, mesh.Size(), devices)
	}
	return mesh, nil
}
