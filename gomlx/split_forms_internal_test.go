package gomlx

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/splitforms"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// TestRandomProgramsOfSplitParametersEqualThoseOfOneDevice runs random programs of windowed and
// whole-axis operations, and their gradients, with parameters that are split over the logical axes.
func TestRandomProgramsOfSplitParametersEqualThoseOfOneDevice(t *testing.T) {
	cases, err := splitforms.Cases(8)
	require.NoError(t, err)
	backends := map[[2]int]*Backend{}
	backend := func(replicas, parts int) *Backend {
		key := [2]int{replicas, parts}
		if backends[key] == nil {
			axes := []sharding.Axis{{Name: "logical", Size: parts}}
			if parts >= 4 {
				axes = []sharding.Axis{{Name: "rows", Size: parts / 2}, {Name: "columns", Size: 2}}
			}
			b, err := New(plugintest.System(t, replicas*parts), Options{Axes: axes, Compiler: plugintest.Programs(t)})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			backends[key] = b
		}
		return backends[key]
	}
	for _, c := range cases {
		t.Run(c.String(), func(t *testing.T) {
			want, _ := runForm(t, backend(1, 1), c.Form)
			got, description := runForm(t, backend(c.Replicas, c.Parts), c.Form)
			for i := range want {
				assert.LessOrEqual(t, splitforms.Difference(got[i], want[i]), 1e-5, "%s: result %d", description, i)
			}
		})
	}
}

// runForm runs a random program, whose annotated parameters are split.
func runForm(t *testing.T, b *Backend, form splitforms.Form) (results [][]float32, description string) {
	g := graph.NewGraph(b, fmt.Sprintf("form %d", form.Seed))
	var data [][]byte
	specs := map[*graph.Node]sharding.Spec{}
	var parameters []*graph.Node
	nodes, description := form.Build(splitforms.Environment{
		Parameter: func(dims ...int) *graph.Node {
			x := graph.Parameter(g, fmt.Sprintf("x%d", len(data)), shapes.Make(dtypes.Float32, dims...))
			data = append(data, pjrt.Bytes(form.Data(len(data), x.Shape().Size())))
			parameters = append(parameters, x)
			return x
		},
		Split: func(x *graph.Node, parts ...int) *graph.Node {
			specs[x] = specOf(b.logical, parts)
			return x
		},
	})
	require.NoError(t, g.Compile(nodes...), description)
	defer g.Finalize()
	state := g.Executable().(*Executable).state
	sig, _ := state.signature(nil)
	for i, x := range parameters {
		sig.Arguments[i].Spec = sharding.Replicated(x.Rank())
		if spec, ok := specs[x]; ok && b.mesh.Size() > 1 {
			sig.Arguments[i].Spec = spec
		}
	}
	results, err := run(b, state, sig, data)
	require.NoError(t, err, description)
	return results, description
}

// specOf returns the split of a tensor into parts over the axes of a mesh.
func specOf(mesh sharding.Mesh, parts []int) sharding.Spec {
	dims, free := make([]sharding.Dim, len(parts)), mesh.Axes()
	for i, n := range parts {
		for n > 1 && len(free) > 0 {
			dims[i].Axes = append(dims[i].Axes, free[0].Name)
			n, free = n/free[0].Size, free[1:]
		}
	}
	return sharding.NewSpec(dims...)
}
