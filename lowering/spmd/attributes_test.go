package spmd

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Partition r*P + p is logical device p of replica r.
func TestGroupsOfPartitions(t *testing.T) {
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "logical", Size: 3})
	assert.NoError(t, err)
	w := &assembler{mesh: mesh}
	assert.Equal(t, ir.IntMatrix{{0, 3}, {1, 4}, {2, 5}}, w.partitionGroups([]string{ReplicaAxis}))
	assert.Equal(t, ir.IntMatrix{{0, 1, 2}, {3, 4, 5}}, w.partitionGroups([]string{"logical"}))
}

func TestAttributesOfAModuleAreWritten(t *testing.T) {
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "logical", Size: 2})
	assert.NoError(t, err)
	rows := sharding.P("replica")
	for want, a := range map[string]ir.Attr{
		"dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>":        ir.IntMatrix{{0, 2}, {1, 3}},
		"#stablehlo.channel_handle<handle = 7, type = 1>":  channelHandle(7),
		`#sdy.sharding<@mesh, [{"replica"}]>`:              shardingAttr(rows),
		`<@mesh, [{"replica"}]>`:                           bareShardingAttr(rows),
		`[<@mesh, [{"replica"}]>, <@mesh, [{"replica"}]>]`: bareShardingsAttr([]sharding.Spec{rows, rows}),
		"[]":                     bareShardingsAttr(nil),
		`{"replica", "logical"}`: manualAxesAttr([]string{"replica", "logical"}),
		`sdy.mesh @mesh = <["replica"=2, "logical"=2]>`: meshAttr(mesh),
	} {
		assert.Equal(t, want, string(a.Append(nil)))
	}
}

func TestNamesOfTheModulesOwnFunctionsAreReserved(t *testing.T) {
	for _, name := range []string{"step", "region_0", "region_12"} {
		assert.True(t, isReservedName(name), name)
	}
	for _, name := range []string{"steps", "region_", "region_a", "region_1b", "my_region_1"} {
		assert.False(t, isReservedName(name), name)
	}
}
