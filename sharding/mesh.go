package sharding

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Axis is one named dimension of a [Mesh]. Size is the number of devices along the axis.
type Axis struct {
	Name string
	Size int
}

// Mesh arranges devices on named axes, like TensorFlow's tf.experimental.dtensor.Mesh and Shardy's
// sdy.mesh. Devices are numbered in row-major order: the coordinate on the last axis varies
// fastest. On a mesh with axes replica=R and logical=P, device r*P + p is logical device p of
// replica r.
//
// A Mesh is an immutable value and may be shared between goroutines. The zero Mesh has no axes and
// one device.
type Mesh struct {
	axes []Axis
}

// NewMesh returns a mesh with the given axes, slowest first. Axis names must be unique and consist
// of letters, digits, '_', '.' and '-'. Sizes must be at least 1, and the mesh must not have more
// than math.MaxInt32 devices. Without axes, the mesh has one device.
func NewMesh(axes ...Axis) (Mesh, error) {
	size := 1
	for i, axis := range axes {
		if err := checkAxisName(i, axis.Name); err != nil {
			return Mesh{}, err
		}
		op := fmt.Sprintf("mesh axis %q", axis.Name)
		if axis.Size < 1 {
			return Mesh{}, invalidError(op, "the size must be at least 1", "its size is %d", axis.Size)
		}
		if axis.Size > math.MaxInt32/size {
			return Mesh{}, invalidError(op, "use smaller axes",
				"with its size of %d the mesh has more than %d devices", axis.Size, math.MaxInt32)
		}
		size *= axis.Size
		for _, earlier := range axes[:i] {
			if earlier.Name == axis.Name {
				return Mesh{}, invalidError(op, "each axis needs a different name", "the name is used twice")
			}
		}
	}
	return Mesh{axes: slices.Clone(axes)}, nil
}

func checkAxisName(i int, name string) error {
	op := fmt.Sprintf("mesh axis %d", i)
	if name == "" {
		return invalidError(op, `use a name such as "data"`, "the name is empty")
	}
	for _, r := range name {
		if !isNameRune(r) {
			return invalidError(op, "use letters, digits, '_', '.' and '-'", "name %q contains %q", name, r)
		}
	}
	return nil
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' || r == '-'
}

// Axes returns a copy of the axes, slowest first.
func (m Mesh) Axes() []Axis { return slices.Clone(m.axes) }

// AxisNames returns the names of the axes, slowest first.
func (m Mesh) AxisNames() []string {
	names := make([]string, len(m.axes))
	for i, axis := range m.axes {
		names[i] = axis.Name
	}
	return names
}

// Rank returns the number of axes.
func (m Mesh) Rank() int { return len(m.axes) }

// Size returns the number of devices, the product of the axis sizes.
func (m Mesh) Size() int {
	size := 1
	for _, axis := range m.axes {
		size *= axis.Size
	}
	return size
}

// AxisSize returns the size of the named axis, and whether the mesh has it.
func (m Mesh) AxisSize(name string) (int, bool) {
	if i := m.axisIndex(name); i >= 0 {
		return m.axes[i].Size, true
	}
	return 0, false
}

func (m Mesh) axisIndex(name string) int {
	return slices.IndexFunc(m.axes, func(a Axis) bool { return a.Name == name })
}

// Coordinates returns the position of a device on each axis, slowest axis first, or nil if the mesh
// does not have the device.
func (m Mesh) Coordinates(device int) []int {
	if device < 0 || device >= m.Size() {
		return nil
	}
	coords := make([]int, len(m.axes))
	for i := len(m.axes) - 1; i >= 0; i-- {
		coords[i] = device % m.axes[i].Size
		device /= m.axes[i].Size
	}
	return coords
}

// Groups returns the groups of devices that a collective over the named axes combines. The devices
// of a group differ only in their coordinates on these axes. Within a group, devices are in
// row-major order of the named axes: the coordinate on the axis named last varies fastest. The
// groups are in row-major order of the other mesh axes. Without axes, each device is its own group.
// The caller owns the result.
//
// If an axis is unknown or named twice, the error is a [*SpecError].
func (m Mesh) Groups(axes ...string) ([][]int, error) {
	if err := NewSpec(Dim{Axes: axes}).validateAxes(m); err != nil {
		return nil, err
	}
	strides, stride := make([]int, len(m.axes)), 1
	for i := len(m.axes) - 1; i >= 0; i-- {
		strides[i] = stride
		stride *= m.axes[i].Size
	}
	// extend returns, for each base device, all devices that differ from it only on axis i.
	extend := func(base []int, i int) (devices []int) {
		for _, device := range base {
			for k := range m.axes[i].Size {
				devices = append(devices, device+k*strides[i])
			}
		}
		return devices
	}
	firsts := []int{0}
	for i, axis := range m.axes {
		if !slices.Contains(axes, axis.Name) {
			firsts = extend(firsts, i)
		}
	}
	groups := make([][]int, len(firsts))
	for g, first := range firsts {
		groups[g] = []int{first}
		for _, name := range axes {
			groups[g] = extend(groups[g], m.axisIndex(name))
		}
	}
	return groups, nil
}

// SortAxes returns names without duplicates, in the order of the mesh axes. Names that are not axes
// of the mesh follow, in the given order. Shardy requires this order for sets of axes such as
// manual_axes.
func (m Mesh) SortAxes(names []string) []string {
	sorted := make([]string, 0, len(names))
	for _, axis := range m.axes {
		if slices.Contains(names, axis.Name) {
			sorted = append(sorted, axis.Name)
		}
	}
	for _, name := range names {
		if !slices.Contains(sorted, name) {
			sorted = append(sorted, name)
		}
	}
	return sorted
}

// Equal reports whether both meshes have the same axes in the same order.
func (m Mesh) Equal(other Mesh) bool { return slices.Equal(m.axes, other.axes) }

// ShardyText returns the mesh as a Shardy operation with the given name (without '@'):
//
//	sdy.mesh @mesh = <["replica"=2, "logical"=4]>
func (m Mesh) ShardyText(name string) string {
	parts := make([]string, len(m.axes))
	for i, axis := range m.axes {
		parts[i] = quote(axis.Name) + "=" + strconv.Itoa(axis.Size)
	}
	return "sdy.mesh @" + quoteSymbol(name) + " = <[" + strings.Join(parts, ", ") + "]>"
}
