package global

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Placement says how a tensor lies over the mesh, and why.
type Placement struct {
	Spec sharding.Spec
	// Rule is the number of the rule that placed the tensor, or -1.
	Rule int
	// Why says in a few words what led to Spec.
	Why string
}

// isVariable reports whether a parameter's name is the path of a variable.
func isVariable(name string) bool { return strings.HasPrefix(name, "/") }

// PlaceData places a tensor that is no variable: split along dimension 0 over the replicas where
// they divide it, else whole on each device.
func PlaceData(mesh sharding.Mesh, dims []int) Placement {
	replicas, _ := mesh.AxisSize(module.ReplicaAxis)
	whole := func(format string, args ...any) Placement {
		return Placement{Spec: sharding.Replicated(len(dims)), Rule: -1, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case replicas == 1:
		return whole("one replica")
	case len(dims) == 0:
		return whole("a scalar")
	case dims[0] == 0 || dims[0]%replicas != 0:
		return whole("%d replicas do not divide dimension 0, which is %d", replicas, dims[0])
	}
	split := make([]sharding.Dim, len(dims))
	split[0].Axes = []string{module.ReplicaAxis}
	return Placement{Spec: sharding.NewSpec(split...), Rule: -1, Why: "a batch"}
}
