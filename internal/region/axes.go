package region

import "github.com/tpustrategy/tpustrategy/sharding"

// ManualAxes returns the mesh axes over which each device computes on its own shards at the current
// point of the trace. They are the axes of the [Manual] regions that t is tracing.
func ManualAxes(t Target) (all []string) {
	for _, p := range t.OpenPasses() {
		if kind, ok := p.Kind.(Manual); ok {
			all = append(all, kind.Axes...)
		}
	}
	return all
}

// NontrivialAxes returns the named axes of the mesh that have more than one device, and the product
// of their sizes. Other names are ignored.
func NontrivialAxes(mesh sharding.Mesh, names []string) (axes []string, devices int) {
	devices = 1
	for _, name := range names {
		if size, _ := mesh.AxisSize(name); size > 1 {
			axes, devices = append(axes, name), devices*size
		}
	}
	return axes, devices
}
