package decoder

import (
	"cmp"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
)

// Form is how a decoder is computed, which changes its losses by rounding only, and a size that few need.
type Form struct {
	// Keep says what of a layer the backward pass does not compute again.
	Keep remat.Policy
	// HeadSize is the number of features of a head; 0 is Width/Heads.
	HeadSize int
	// Flash computes attention's scores again in the backward pass whatever Keep says, as kernels do.
	Flash bool
	// Tokens splits what layers hand on over the logical devices by its tokens, which takes less of their
	// memory. Their number must divide Sequence.
	Tokens bool
}

// Head returns the number of features of a head.
func (c Config) Head() int { return cmp.Or(c.HeadSize, c.Width/c.Heads) }

// with is the decoder for a past: a sampler has a token at a time.
func (c Config) with(past *generate.Cache) Config {
	c.Flash, c.Tokens = c.Flash && past == nil, c.Tokens && past == nil
	return c
}

// attention is that of the past, [rows, tokens, heads, size], whole heads on each logical device.
func (c Config) attention(past *generate.Cache, q, k, v *graph.Node) *graph.Node {
	if !c.Flash {
		return c.inside(past.Attend(q, k, v))
	}
	return c.inside(remat.BlockMany(remat.Nothing(), []*graph.Node{q, k, v}, func(in []*graph.Node) []*graph.Node {
		return []*graph.Node{past.Attend(in[0], in[1], in[2])}
	})[0])
}

// handed is what layers hand on, [rows, tokens, Width], as it lies over the logical devices.
func (c Config) handed(x *graph.Node) *graph.Node {
	if c.Tokens {
		return logical.SplitOver(x, "", "logical", "")
	}
	return logical.Replicate(x)
}

// back is the last product of a layer, of x that lies over the logical devices by its features, dimension
// 2. GoMLX's dense layer makes one dimension of rows and tokens, which keeps all tokens on each of them.
func (c Config) back(scope *model.Scope, x *graph.Node) *graph.Node {
	if !c.Tokens {
		return c.handed(layers.Dense(scope, x, false, c.Width))
	}
	w := scope.In("dense").VariableWithShape("weights", shapes.Make(x.DType(), x.Shape().Dim(-1), c.Width))
	return c.handed(graph.Einsum("btf,fw->btw", x, w.NodeValue(x.Graph())))
}

// whole is all tokens of what a layer was handed, on each logical device.
func (c Config) whole(x *graph.Node) *graph.Node {
	if c.Tokens {
		return logical.Replicate(x)
	}
	return x
}

// inside is what a layer splits by heads or hidden features, dimension 2, and not by the tokens of what it
// hands on.
func (c Config) inside(x *graph.Node) *graph.Node {
	if !c.Tokens {
		return x
	}
	dims := make([]string, x.Rank())
	dims[2] = "logical"
	return logical.SplitOver(x, dims...)
}
