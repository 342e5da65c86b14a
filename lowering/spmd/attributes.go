package spmd

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

const (
	replicaGroups = ir.Alias("replica_groups")
	logicalGroups = ir.Alias("logical_groups")
)

// channel is the handle of a collective.
func channel(n int) ir.Attr {
	return ir.Raw(fmt.Sprintf("#stablehlo.channel_handle<handle = %d, type = 1>", n))
}

// borderSharding is the sharding of a function's argument or result, innerSharding that of a value
// inside a function, and bares are those of what crosses the border of a manual computation.
func borderSharding(s sharding.Spec) ir.Attr { return ir.Raw(s.Shardy(meshName)) }

func innerSharding(s sharding.Spec) ir.Attr { return ir.Raw(s.ShardyBare(meshName)) }

func bares(list []sharding.Spec) ir.Attr {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = s.ShardyBare(meshName)
	}
	return ir.Raw("[" + strings.Join(all, ", ") + "]")
}

// axes are the mesh axes over which a computation is manual.
func axes(names []string) ir.Attr { return ir.Raw(sharding.ShardyAxes(names)) }

// meshDeclaration is the declaration of a mesh.
func meshDeclaration(m sharding.Mesh) ir.Attr { return ir.Raw(m.Shardy(meshName)) }

// stacked is the sharding of a tensor whose leading dimension counts the logical devices. rank
// includes that dimension.
func (w *writer) stacked(rank int) sharding.Spec {
	dims := make([]sharding.Dim, rank)
	dims[0].Axes = w.factors.Names()
	return sharding.NewSpec(dims...)
}
