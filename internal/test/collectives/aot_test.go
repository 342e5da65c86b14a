package collectives_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// TestAOTCollectivesOfEncodedDTypes compiles collectives for dtypes that libtpu supports only
// partially.
func TestAOTCollectivesOfEncodedDTypes(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	compileAll(t, dtypes.Uint64, dtypes.Complex64, dtypes.Int2)
}

// TestAOTLargeCollectivesOfEveryDType compiles collectives for all dtypes except Complex128, which
// TPUs do not support.
func TestAOTLargeCollectivesOfEveryDType(t *testing.T) {
	plugintest.Large(t)
	if !plugintest.TPUChild(t) {
		return
	}
	compileAll(t, slices.DeleteFunc(writable(), func(d dtypes.DType) bool { return d == dtypes.Complex128 })...)
}

// compileAll compiles a program for each dtype and group of operations.
func compileAll(t *testing.T, all ...dtypes.DType) {
	for _, p := range []int{1, 2} {
		s := strategytest.Ahead(t, "v5e:2x2", strategy.Options{LogicalDevices: p})
		for _, group := range slices.Sorted(maps.Keys(groups)) {
			if p == 1 && group != "over the replicas" {
				continue
			}
			for _, d := range all {
				argument := d
				if d.IsPacked() { // not supported for arguments
					argument = dtypes.Int8
				}
				_, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) (out []*graph.Node) {
					for _, o := range groups[group] {
						if !o.of(d) || o.name == "dot" && d.Bits() == 64 && d.IsInt() { // unsupported by libtpu
							continue
						}
						out = append(out, graph.ConvertDType(o.applied(rc, group, graph.ConvertDType(in[0], d), p), argument))
					}
					return out
				}, strategy.FunctionOptions{}).Compiled(t.Context(), shapes.Make(argument, rowsOf, columnsOf))
				assert.NoError(t, err, "%s %s, %d logical devices", d, group, p)
			}
		}
	}
}
