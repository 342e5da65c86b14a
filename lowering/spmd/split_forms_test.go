//go:build cgo

package spmd_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/splitforms"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// splitFormsEnvironment is the variable with the number of random programs to run.
const splitFormsEnvironment = "TPUSTRATEGY_SPLIT_FORMS"

// TestRandomProgramsOfSplitTensorsEqualThoseOfOneDevice runs random programs of windowed and whole-axis
// operations, and their gradients, on several meshes.
func TestRandomProgramsOfSplitTensorsEqualThoseOfOneDevice(t *testing.T) {
	count := 40
	if text := os.Getenv(splitFormsEnvironment); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	first := 0
	if text := os.Getenv(splitFormsEnvironment + "_FIRST"); text != "" {
		first, _ = strconv.Atoi(text)
	}
	meshes := [][2]int{{1, 2}, {1, 4}, {1, 8}, {2, 4}}
	wrong := 0
	for n := first; n < first+count; n++ {
		replicas, parts := meshes[n%len(meshes)][0], meshes[n%len(meshes)][1]
		form := splitforms.New(uint64(n), parts)
		want, _, err := runForm(t, form, 1, 1)
		require.NoError(t, err)
		got, description, err := runForm(t, form, replicas, parts)
		description = fmt.Sprintf("mesh %dx%d, %s", replicas, parts, description)
		if !assert.NoError(t, err, description) {
			wrong++
			continue
		}
		for i := range want {
			if d := splitforms.Difference(got[i], want[i]); d > 1e-5 {
				assert.Fail(t, fmt.Sprintf("%s: result %d differs by %g", description, i, d))
				wrong++
				break
			}
		}
	}
	t.Logf("%d of %d programs differ", wrong, count)
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
	m, err := tr.Module(g, spmd.Signature{Arguments: make([]spmd.Tensor, len(data)), Results: make([]spmd.Tensor, len(results))})
	require.NoError(t, err, description)
	out, err = execute(t, m, data...)
	return out, description, err
}
