//go:build cgo

package spmd_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// newValue is a mesh with a replica axis and named logical axes.
type newValue struct {
	replicas int
	axes     []sharding.Axis
}

func (n newValue) String() string { return fmt.Sprint(n.replicas, n.axes) }

func (n newValue) options() spmd.Options {
	return spmd.Options{Replicas: n.replicas, LogicalAxes: n.axes, Target: lowering.TargetCPU}
}

// over returns a split by names, without the names that are not in the mesh.
func (n newValue) over(dims ...string) logical.Annotation {
	for i, dim := range dims {
		var has []string
		for name := range strings.SplitSeq(dim, ",") {
			for _, axis := range n.axes {
				if axis.Name == name {
					has = append(has, name)
				}
			}
		}
		dims[i] = strings.Join(has, ",")
	}
	return logical.SplitOverAxes(dims...)
}

func (n newValue) put(x *graph.Node, dims ...string) *graph.Node {
	return logical.Apply(x, n.over(dims...))
}

var (
	model2, sequence2, expert2 = sharding.Axis{Name: "model", Size: 2}, sharding.Axis{Name: "sequence", Size: 2},
		sharding.Axis{Name: "expert", Size: 2}

	namedMeshes = []newValue{
		{1, []sharding.Axis{model2, sequence2, expert2}},
		{1, []sharding.Axis{model2, sequence2}},
		{2, []sharding.Axis{model2, sequence2}},
		{2, []sharding.Axis{sequence2, model2}},
		{2, []sharding.Axis{{Name: "model", Size: 4}}},
		{2, []sharding.Axis{{Name: "expert", Size: 1}, model2, {Name: "sequence", Size: 1}}},
		{1, []sharding.Axis{{Name: "model", Size: 1}}},
	}
)

func waves(n int, phase float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(math.Sin(float64(i)*1.3 + phase))
	}
	return v
}

// attend returns an embedding followed by a transformer layer: its loss and gradients. Each tensor
// is split over some of the axes.
func attend(n newValue) func(g *graph.Graph) []*graph.Node {
	const rows, length, width, heads, vocabulary = 2, 4, 8, 4, 16
	return func(g *graph.Graph) []*graph.Node {
		table, q, o := param(g, "table", vocabulary, width), param(g, "q", width, 3, heads, 2), param(g, "o", heads, 2, width)
		up, down := param(g, "up", width, 16), param(g, "down", 16, width)
		tokens := graph.ConvertDType(param(g, "tokens", rows, length, 1), dtypes.Int32)
		x := n.put(graph.Gather(n.put(table, "model", ""), tokens), "", "sequence", "")
		qkv := n.put(graph.Einsum("bld,dkhe->kblhe", x, n.put(q, "", "", "model", "")), "", "", "sequence", "model", "")
		at := func(i int) *graph.Node { return graph.Squeeze(graph.Slice(qkv, graph.AxisElem(i)), 0) }
		scores := n.put(graph.Einsum("blhe,bmhe->bhlm", at(0), at(1)), "expert", "model", "sequence", "")
		attended := n.put(graph.Einsum("bhlm,bmhe->blhe", graph.Softmax(scores, -1), at(2)), "", "sequence", "model", "")
		x = n.put(graph.Add(x, graph.Einsum("blhe,hed->bld", attended, n.put(o, "model", "", ""))), "", "sequence", "")
		h := graph.Tanh(n.put(graph.Einsum("bld,df->blf", x, up), "", "sequence", "expert,model"))
		x = n.put(graph.Add(x, graph.Einsum("blf,fd->bld", h, n.put(down, "model,expert", ""))), "expert", "",
			"sequence,model")
		loss := graph.ReduceAllSum(graph.Mul(x, x))
		return append([]*graph.Node{loss, x}, graph.Gradient(loss, table, q, o, up, down)...)
	}
}

func attendSignature(n newValue) spmd.Signature {
	arguments := []spmd.Tensor{
		{Name: "table", Annotation: n.over("model,sequence", "")}, {Name: "q", Annotation: n.over("", "", "model", "")},
		{Name: "o", Annotation: n.over("model", "", "sequence")}, {Name: "up", Annotation: n.over("sequence", "model")},
		{Name: "down", Annotation: n.over("model", "")}, {Name: "tokens"},
	}
	results := []spmd.Tensor{{Name: "loss"}, {Name: "x", Annotation: n.over("", "sequence", "")}}
	for i, a := range arguments[:5] {
		a.Name, results = "gradient_"+a.Name, append(results, a)
		arguments[i].Annotation = a.Annotation
	}
	return spmd.Signature{Arguments: arguments, Results: results}
}

func TestSplitsByNamesKeepTheNumbers(t *testing.T) {
	tokens := []float32{3, 0, 15, 7, 7, 1, 2, 14}
	in := [][]float32{waves(16*8, 0), waves(8*24, 1), waves(64, 2), waves(128, 3), waves(128, 4), tokens}
	var alone newValue
	want := run(t, build(t, alone.options(), attendSignature(alone), attend(alone)), in...)
	for _, n := range namedMeshes {
		m := build(t, n.options(), attendSignature(n), attend(n))
		got := run(t, m, in...)
		for i := range want {
			assert.InDeltaSlice(t, want[i], got[i], 2e-4, "%s: %s", n, m.Results[i].Name)
		}
	}
}

// TestRegionsOfAMeshOfNamedAxes runs regions and assigned ops together with splits over some of the
// axes, and with splits by numbers that split the axes.
func TestRegionsOfAMeshOfNamedAxes(t *testing.T) {
	step := func(n newValue, p int) func(g *graph.Graph) []*graph.Node {
		return func(g *graph.Graph) []*graph.Node {
			x, w := param(g, "x", 8, 8), param(g, "w", 8, 8)
			h := n.put(graph.MatMul(x, n.put(w, "", "model")), "", "model")
			h = logical.Split(h, p, 1)
			keep := logical.OnDevice(p-1, h, func(h *graph.Node) *graph.Node { return graph.Tanh(graph.MatMul(h, w)) })
			h = n.put(graph.Mul(logical.Assign(graph.Sin(keep), p/2), keep), "sequence", "")
			if p == 8 {
				h = logical.Split(h, 4, 2)
			}
			y := graph.ReduceAllSum(graph.Mul(h, logical.Replicate(h)))
			return []*graph.Node{y, graph.Gradient(y, w)[0]}
		}
	}
	x, w := waves(64, 0), waves(64, 5)
	signature := func(n newValue) spmd.Signature {
		return spmd.Signature{Arguments: []spmd.Tensor{{}, {Annotation: n.over("model", "")}}, Results: []spmd.Tensor{{},
			{Annotation: n.over("model", "")}}}
	}
	var alone newValue
	want := run(t, build(t, alone.options(), signature(alone), step(alone, 1)), x, w)
	for _, n := range append(namedMeshes, newValue{1, []sharding.Axis{model2, {Name: "sequence", Size: 4}}}) {
		p := 1
		for _, axis := range n.axes {
			p *= axis.Size
		}
		m := build(t, n.options(), signature(n), step(n, p))
		if n.axes[len(n.axes)-1].Size == 4 && len(n.axes) == 2 {
			assert.Contains(t, string(m.Text), `["replica"=1, "model"=2, "sequence.0"=2, "sequence.1"=2]`)
			assert.Equal(t, "model=2,sequence=4", m.LogicalMesh.String())
		}
		got := run(t, m, x, w)
		for i := range want {
			assert.InDeltaSlice(t, want[i], got[i], 1e-4, "%s: result %d", n, i)
		}
	}
}

func TestTheTextOfNamedAxes(t *testing.T) {
	n := namedMeshes[2]
	m := build(t, n.options(), attendSignature(n), attend(n))
	for _, text := range []string{
		`sdy.mesh @mesh = <["replica"=2, "model"=2, "sequence"=2]>`,
		`<@mesh, [{"model", "sequence"}, {}]>`,
		`sdy.sharding_constraint`,
		`<@mesh, [{}, {"sequence"}, {}]> : tensor<2x4x8xf32>`,
		`<@mesh, [{}, {"model"}, {"sequence"}, {}]> : tensor<2x4x4x4xf32>`,
		`<@mesh, [{}, {"sequence"}, {"model"}]> : tensor<2x4x16xf32>`,
	} {
		assert.Contains(t, string(m.Text), text)
	}
	assert.NotContains(t, string(m.Text), "logical")
	require.Equal(t, "replica=2,model=2,sequence=2", m.Mesh.String())
	assert.Equal(t, []int{4, 8}, m.Arguments[0].ShardDims)
	assert.Equal(t, []int{2, 2, 4}, m.Arguments[2].ShardDims)
}

func TestOptionsAndSignaturesOfBadAxesAreRefused(t *testing.T) {
	identity := func(g *graph.Graph) []*graph.Node { return []*graph.Node{param(g, "x", 4, 6)} }
	for says, c := range map[string]struct {
		options spmd.Options
		result  logical.Annotation
	}{
		"have 4 devices, but a replica has 8": {spmd.Options{LogicalDevices: 8,
			LogicalAxes: []sharding.Axis{model2, sequence2}}, logical.Annotation{}},
		`axis name "replica" is reserved for the replicas`: {spmd.Options{LogicalAxes: []sharding.Axis{{Name: "replica",
			Size: 2}}}, logical.Annotation{}},
		`mesh axis "model": the name is used twice`: {spmd.Options{LogicalAxes: []sharding.Axis{model2,
			model2}}, logical.Annotation{}},
		`split over axis "expert", which`: {spmd.Options{LogicalAxes: []sharding.Axis{model2}},
			logical.SplitOverAxes("", "expert")},
		`split over the replicas; use axes`: {spmd.Options{LogicalAxes: []sharding.Axis{model2}},
			logical.SplitOverAxes("replica", "")},
		`dimension 1 of size 6 is not divisible into 4`: {spmd.Options{LogicalAxes: []sharding.Axis{model2,
			sequence2}}, logical.SplitOverAxes("", "model,sequence")},
		`split "y" of shape [4 6]: the product of the parts [2 3] is 6`: {spmd.Options{LogicalAxes: []sharding.Axis{model2,
			sequence2}}, logical.SplitInto(2, 3)},
	} {
		tr := spmd.NewTrace(c.options)
		g := graph.NewGraph(tr, "step")
		require.NoError(t, g.Compile(identity(g)...))
		_, err := tr.Module(g, spmd.Signature{Arguments: make([]spmd.Tensor, 1),
			Results: []spmd.Tensor{{Name: "y", Annotation: c.result}}})
		var bad *logical.Error
		require.ErrorAs(t, err, &bad)
		assert.ErrorContains(t, err, says)
	}
	var bad *logical.Error
	g := graph.NewGraph(spmd.NewTrace(namedMeshes[1].options()), "step")
	x := param(g, "x", 4, 6)
	for _, dims := range [][]string{{"model"}, {"model", "model"}, {"", "pipeline"}, {"", "model,sequence"},
		{"replica", ""}} {
		require.ErrorAs(t, caught(func() { logical.SplitOver(x, dims...) }), &bad, "%v", dims)
	}
	require.NoError(t, caught(func() { logical.SplitOver(x, "sequence,model", "") }))
	require.ErrorAs(t, caught(func() {
		logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return logical.SplitOver(x, "model", "") })
	}), &bad)
}
