//go:build cgo

package spmd_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/splitforms"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// TestRandomProgramsOfSplitTensorsEqualThoseOfOneDevice runs random programs of windowed operations
// and operations over a whole axis, and their gradients, as steps.
func TestRandomProgramsOfSplitTensorsEqualThoseOfOneDevice(t *testing.T) {
	cases, err := splitforms.Cases(30)
	require.NoError(t, err)
	for _, c := range cases {
		t.Run(c.String(), func(t *testing.T) {
			want, _, err := runForm(t, c.Form, 1, 1)
			require.NoError(t, err)
			got, description, err := runForm(t, c.Form, c.Replicas, c.Parts)
			require.NoError(t, err, description)
			for i := range want {
				assert.LessOrEqual(t, splitforms.Difference(got[i], want[i]), 1e-5, "%s: result %d", description, i)
			}
		})
	}
}

// runForm runs a random program.
func runForm(t *testing.T, form splitforms.Form, replicas, parts int) (out [][]float32, description string, err error) {
	tr := spmd.NewTrace(spmd.Options{Replicas: replicas, LogicalDevices: parts, Target: lowering.TargetCPU})
	g := graph.NewGraph(tr, "form")
	var data [][]float32
	results, description := form.Build(splitforms.Environment{
		Parameter: func(dims ...int) *graph.Node {
			x := param(g, fmt.Sprintf("x%d", len(data)), dims...)
			data = append(data, form.Data(len(data), x.Shape().Size()))
			return x
		},
		Split: func(x *graph.Node, split ...int) *graph.Node {
			if parts == 1 {
				return x
			}
			return logical.Split(x, split...)
		},
	})
	require.NoError(t, g.Compile(results...), description)
	signature := spmd.Signature{Arguments: make([]spmd.Tensor, len(data)), Results: make([]spmd.Tensor, len(results))}
	m, err := tr.Module(g, signature)
	require.NoError(t, err, description)
	out, err = execute(t, m, data...)
	return out, description, err
}
