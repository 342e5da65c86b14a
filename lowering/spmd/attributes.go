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

// channel returns the handle of a collective.
func channel(n int) ir.Attr {
	return ir.Raw(fmt.Sprintf("#stablehlo.channel_handle<handle = %d, type = 1>", n))
}

// borderSharding is the sharding of an argument or a result of a function. innerSharding is the
// sharding of a value inside a function. bares are the shardings of the operands and results of a
// manual computation.
func borderSharding(s sharding.Spec) ir.Attr { return ir.Raw(s.Shardy(meshName)) }

func innerSharding(s sharding.Spec) ir.Attr { return ir.Raw(s.ShardyBare(meshName)) }

func bares(list []sharding.Spec) ir.Attr {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = s.ShardyBare(meshName)
	}
	return ir.Raw("[" + strings.Join(all, ", ") + "]")
}

// axes returns the mesh axes over which a computation is manual.
func axes(names []string) ir.Attr { return ir.Raw(sharding.ShardyAxes(names)) }

func meshDeclaration(m sharding.Mesh) ir.Attr { return ir.Raw(m.Shardy(meshName)) }

// stacked returns the sharding of a tensor whose leading dimension is the index of the logical
// device. rank includes that dimension.
func (w *writer) stacked(rank int) sharding.Spec {
	dims := make([]sharding.Dim, rank)
	dims[0].Axes = w.factors.Names()
	return sharding.NewSpec(dims...)
}
