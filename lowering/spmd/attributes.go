package spmd

import (
	"strconv"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// groups are the partitions that a collective combines with each other.
type groups [][]int

// Append implements [ir.Attr].
func (g groups) Append(text []byte) []byte {
	text = append(text, "dense<["...)
	for i, group := range g {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = append(text, '[')
		for k, partition := range group {
			if k > 0 {
				text = append(text, ", "...)
			}
			text = strconv.AppendInt(text, int64(partition), 10)
		}
		text = append(text, ']')
	}
	text = append(text, "]> : tensor<"...)
	text = strconv.AppendInt(text, int64(len(g)), 10)
	text = append(text, 'x')
	text = strconv.AppendInt(text, int64(len(g[0])), 10)
	return append(text, "xi64>"...)
}

const (
	replicaGroups = ir.Alias("replica_groups")
	logicalGroups = ir.Alias("logical_groups")
)

// overReplicas are groups of the partitions of one logical device: partition r*P + p is logical
// device p of replica r.
func (w *writer) overReplicas() groups {
	all := make(groups, w.logicalDevices)
	for p := range all {
		for r := range w.replicas {
			all[p] = append(all[p], r*w.logicalDevices+p)
		}
	}
	return all
}

// overDevices are groups of the partitions of one replica.
func (w *writer) overDevices() groups {
	all := make(groups, w.replicas)
	for r := range all {
		for p := range w.logicalDevices {
			all[r] = append(all[r], r*w.logicalDevices+p)
		}
	}
	return all
}

// channel is the handle of a collective.
type channel int

// Append implements [ir.Attr].
func (c channel) Append(text []byte) []byte {
	text = append(text, "#stablehlo.channel_handle<handle = "...)
	return append(strconv.AppendInt(text, int64(c), 10), ", type = 1>"...)
}

// borderSharding is the sharding of a function's argument or result.
type borderSharding struct{ sharding.Spec }

// Append implements [ir.Attr].
func (s borderSharding) Append(text []byte) []byte { return append(text, s.Shardy(meshName)...) }

// innerSharding is the sharding of a value inside a function.
type innerSharding struct{ sharding.Spec }

// Append implements [ir.Attr].
func (s innerSharding) Append(text []byte) []byte { return append(text, s.ShardyBare(meshName)...) }

// bares are the shardings of what crosses the border of a manual computation.
type bares []sharding.Spec

// Append implements [ir.Attr].
func (list bares) Append(text []byte) []byte {
	text = append(text, '[')
	for i, s := range list {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = append(text, s.ShardyBare(meshName)...)
	}
	return append(text, ']')
}

// axes are the mesh axes over which a computation is manual.
type axes []string

// Append implements [ir.Attr].
func (a axes) Append(text []byte) []byte { return append(text, sharding.ShardyAxes(a)...) }

// meshDeclaration is the declaration of a mesh.
type meshDeclaration struct{ sharding.Mesh }

// Append implements [ir.Attr].
func (m meshDeclaration) Append(text []byte) []byte { return append(text, m.Shardy(meshName)...) }

// stacked is the sharding of a tensor whose leading dimension counts the logical devices. rank
// includes that dimension.
func (w *writer) stacked(rank int) sharding.Spec {
	dims := make([]sharding.Dim, rank)
	dims[0].Axes = w.factors.Names()
	return sharding.NewSpec(dims...)
}
