package sharding

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Axis is one named dimension of a [Mesh].
type Axis struct {
	Name string
	Size int
}

// Mesh arranges devices on named axes, as TensorFlow's tf.experimental.dtensor.Mesh and Shardy's
// sdy.mesh do. Device numbers run row-major over the axes: the last axis varies fastest. On the
// mesh of a strategy, with axes replica=R and logical=P, device r*P + p is logical device p of
// replica r.
//
// A Mesh is an immutable value: it holds no client and no device, is the same on every host, and
// may be shared between goroutines. The zero Mesh has no axes and one device.
type Mesh struct {
	axes []Axis
}

// NewMesh returns the mesh over axes, slowest first. It refuses an empty or repeated name, a name
// with characters other than letters, digits, '_', '.' and '-', a size below 1, and a mesh of more
// than math.MaxInt32 devices. A mesh without axes has one device.
func NewMesh(axes ...Axis) (Mesh, error) {
	size := 1
	for i, axis := range axes {
		if err := checkAxisName(i, axis.Name); err != nil {
			return Mesh{}, err
		}
		at := fmt.Sprintf("mesh axis %q", axis.Name)
		if axis.Size < 1 {
			return Mesh{}, wrong(at, "give at least 1", "its size is %d", axis.Size)
		}
		if axis.Size > math.MaxInt32/size {
			return Mesh{}, wrong(at, "give smaller axes", "its size of %d makes the mesh larger than %d devices", axis.Size, math.MaxInt32)
		}
		size *= axis.Size
		for _, earlier := range axes[:i] {
			if earlier.Name == axis.Name {
				return Mesh{}, wrong(at, "give every axis a name of its own", "it is given twice")
			}
		}
	}
	return Mesh{axes: slices.Clone(axes)}, nil
}

func checkAxisName(i int, name string) error {
	op := fmt.Sprintf("mesh axis %d", i)
	if name == "" {
		return wrong(op, `name it, for example, "data"`, "the name is empty")
	}
	for _, r := range name {
		if !isNameRune(r) {
			return wrong(op, "use letters, digits, '_', '.' and '-'", "name %q contains %q", name, r)
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

// Coordinates returns the place of a device on each axis, slowest axis first. It returns nil if the
// mesh has no such device.
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

// Groups returns the groups of devices that a collective over the named axes combines: devices of
// one group differ in their coordinates on these axes only. In a group the devices run row-major
// over the axes in the order in which they are named: on the axis named last the coordinate varies
// fastest. The groups run row-major over the other axes of the mesh. Without axes each device is a
// group. Each call makes new slices.
//
// An axis that the mesh lacks, and one that is named twice, are a [*SpecError].
func (m Mesh) Groups(axes ...string) ([][]int, error) {
	if err := NewSpec(Dim{Axes: axes}).validateAxes(m); err != nil {
		return nil, err
	}
	// strides are the distances between neighbors along each axis.
	strides, stride := make([]int, len(m.axes)), 1
	for i := len(m.axes) - 1; i >= 0; i-- {
		strides[i] = stride
		stride *= m.axes[i].Size
	}
	// along appends the devices that are reached from those of base along an axis.
	along := func(base []int, i int) (devices []int) {
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
			firsts = along(firsts, i)
		}
	}
	groups := make([][]int, len(firsts))
	for g, first := range firsts {
		groups[g] = []int{first}
		for _, name := range axes {
			groups[g] = along(groups[g], m.axisIndex(name))
		}
	}
	return groups, nil
}

// SortAxes returns names in the order of the mesh's axes, without repeats. Names the mesh lacks
// come last, in the order given. Shardy wants sets of axes, such as manual_axes, in this order.
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

// Shardy returns the mesh as a Shardy operation named name, without a leading '@': sdy.mesh @mesh =
// <["replica"=2, "logical"=4]>.
func (m Mesh) Shardy(name string) string {
	parts := make([]string, len(m.axes))
	for i, axis := range m.axes {
		parts[i] = quote(axis.Name) + "=" + strconv.Itoa(axis.Size)
	}
	return "sdy.mesh @" + symbol(name) + " = <[" + strings.Join(parts, ", ") + "]>"
}
