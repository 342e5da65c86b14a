package spmd_test

import (
	"regexp"
	"runtime"
	"strconv"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// line returns the line of its caller.
func line() int {
	_, _, n, _ := runtime.Caller(1)
	return n
}

var numbered = regexp.MustCompile(`loc\("([a-z_]+)_s([0-9]+)"\)`)

// byOp returns the origins of a module's statements by op.
func byOp(t *testing.T, m *spmd.Module) map[string][]*ir.Origin {
	all, found := map[string][]*ir.Origin{}, numbered.FindAllSubmatch(m.Text, -1)
	require.Len(t, found, len(m.Origins))
	for _, match := range found {
		n, err := strconv.Atoi(string(match[2]))
		require.NoError(t, err)
		all[string(match[1])] = append(all[string(match[1])], m.Origins[n])
	}
	return all
}

func TestEachOpComesFromALine(t *testing.T) {
	var dense, curve, total, custom, update int
	x := shapes.Make(dtypes.Float32, 8, 16)
	m := build(t, spmd.Options{Replicas: 2, LogicalDevices: 2, Origins: true}, spmd.Signature{
		Arguments: []spmd.Tensor{{Name: "x", PerReplica: true}, {Name: "/layer/dense/weights",
			Annotation: logical.SplitInto(1, 2)}, {Name: "/out/scale"}},
		Results: []spmd.Tensor{{Name: "w"}},
	}, func(g *graph.Graph) []*graph.Node {
		in := graph.Parameter(g, "argument_0", x)
		w, scale := param(g, "/layer/dense/weights", 16, 4), param(g, "/out/scale", 8, 4)
		y := graph.MatMul(in, w)
		dense = line() - 1
		y = graph.Tanh(logical.Split(y, 1, 2))
		curve = line() - 1
		y = graph.IdentityWithCustomGradient(y, func(_, v *graph.Node) *graph.Node {
			custom = line() + 1
			return graph.Floor(v)
		})
		loss := graph.ReduceAllSum(graph.Exp(graph.Mul(y, scale)))
		total = line() - 1
		gradient := spmd.AllReduce(graph.Gradient(loss, w)[0], spmd.Sum)
		update = line() - 1
		return []*graph.Node{graph.Sub(w, gradient)}
	})
	at := byOp(t, m)
	where := func(op string) (lines []int, passes []ir.Pass, layers []string) {
		for _, o := range at[op] {
			assert.Equal(t, "github.com/tpustrategy/tpustrategy/lowering/spmd_test/origin_test.go", o.File)
			lines, passes, layers = append(lines, o.Line), append(passes, o.Pass), append(layers, o.Layer)
		}
		return lines, passes, layers
	}
	for op, want := range map[string]struct {
		lines  []int
		passes []ir.Pass
		layers []string
	}{
		"dot_general": {[]int{dense, dense, dense}, []ir.Pass{ir.Forward, ir.Backward, ir.Backward}, []string{"/layer/dense",
			"/layer/dense", "/layer/dense"}},
		"tanh":        {[]int{curve}, []ir.Pass{ir.Forward}, []string{"/layer/dense"}},
		"exponential": {[]int{total}, []ir.Pass{ir.Forward}, []string{"/out"}},
		"floor":       {[]int{custom}, []ir.Pass{ir.Backward}, []string{"/out"}},
		"all_reduce":  {[]int{update}, []ir.Pass{ir.Update}, []string{"/layer/dense"}},
	} {
		lines, passes, layers := where(op)
		assert.Equal(t, want.lines, lines, op)
		assert.Equal(t, want.passes, passes, op)
		assert.Equal(t, want.layers, layers, op)
	}
	lines, passes, _ := where("sharding_constraint")
	assert.Subset(t, lines, []int{curve})
	assert.Contains(t, passes, ir.Backward, "an annotation stands in the gradient as well")
	assert.Equal(t, "graph.Tanh", at["tanh"][0].Call)
	for _, a := range m.Arguments {
		assert.NotNil(t, a.Origin, a.Name)
	}
	assert.Equal(t, "/layer/dense", m.Arguments[1].Origin.Layer)
}

// The text is an input of compilers and caches and the same on all hosts, so it must not contain
// lines.
func TestTheTextDoesNotDependOnLines(t *testing.T) {
	sig := spmd.Signature{Arguments: []spmd.Tensor{{Name: "x"}}, Results: []spmd.Tensor{{Name: "y"}}}
	once := build(t, spmd.Options{Origins: true}, sig,
		func(g *graph.Graph) []*graph.Node { return []*graph.Node{graph.Exp(param(g, "x", 4))} })
	again := build(t, spmd.Options{Origins: true}, sig, func(g *graph.Graph) []*graph.Node {
		x := param(g, "x", 4)
		return []*graph.Node{graph.Exp(x)}
	})
	assert.Equal(t, string(once.Text), string(again.Text))
	assert.NotEqual(t, once.Origins, again.Origins)
}
