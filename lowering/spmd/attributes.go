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

func channelHandle(n int) ir.Attr {
	return ir.Raw(fmt.Sprintf("#stablehlo.channel_handle<handle = %d, type = 1>", n))
}

// shardingAttr returns the sharding attribute of an argument or result of a function.
// bareShardingAttr returns the attribute of a value inside a function, without the #sdy.sharding
// prefix, and bareShardingsAttr the list for the operands or results of a manual computation.
func shardingAttr(s sharding.Spec) ir.Attr { return ir.Raw(s.ShardyText(meshName)) }

func bareShardingAttr(s sharding.Spec) ir.Attr { return ir.Raw(s.ShardyTextBare(meshName)) }

func bareShardingsAttr(specs []sharding.Spec) ir.Attr {
	shardings := make([]string, len(specs))
	for i, s := range specs {
		shardings[i] = s.ShardyTextBare(meshName)
	}
	return ir.Raw("[" + strings.Join(shardings, ", ") + "]")
}

func manualAxesAttr(names []string) ir.Attr { return ir.Raw(sharding.ShardyAxisSet(names)) }

func meshAttr(m sharding.Mesh) ir.Attr { return ir.Raw(m.ShardyText(meshName)) }

// stackedSpec returns the sharding of a tensor that is stacked over the logical devices: each
// device has one slice along the first dimension. rank includes this dimension.
func (w *assembler) stackedSpec(rank int) sharding.Spec {
	dims := make([]sharding.Dim, rank)
	dims[0].Axes = w.factors.Names()
	return sharding.NewSpec(dims...)
}
