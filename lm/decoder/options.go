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

// ComputeOptions configures how a decoder is computed. Except for HeadSize, the options change the
// losses only by rounding.
type ComputeOptions struct {
	// Remat is the rematerialization policy of a layer: it selects the values that the backward pass
	// does not recompute.
	Remat remat.Policy
	// HeadSize is the number of features of a head; 0 is Width/Heads.
	HeadSize int
	// FlashAttention recomputes the attention scores in the backward pass, independent of Remat,
	// like flash attention kernels.
	FlashAttention bool
	// ShardByTokens shards the activations between layers over the logical devices by tokens, which
	// saves memory. The number of logical devices must divide Sequence.
	ShardByTokens bool
}

// FeaturesPerHead returns the number of features of a head.
func (c Config) FeaturesPerHead() int { return cmp.Or(c.HeadSize, c.Width/c.Heads) }

// forCache returns the configuration without FlashAttention and ShardByTokens if cache is not nil,
// because generation processes one token at a time.
func (c Config) forCache(cache *generate.Cache) Config {
	c.FlashAttention, c.ShardByTokens = c.FlashAttention && cache == nil, c.ShardByTokens && cache == nil
	return c
}

// attend computes attention. The result is [rows, tokens, heads, size] and is sharded by heads.
func (c Config) attend(cache *generate.Cache, q, k, v *graph.Node) *graph.Node {
	if !c.FlashAttention {
		return c.shardFeatures(cache.Attend(q, k, v))
	}
	return c.shardFeatures(remat.BlockMany(remat.Nothing(), []*graph.Node{q, k, v}, func(in []*graph.Node) []*graph.Node {
		return []*graph.Node{cache.Attend(in[0], in[1], in[2])}
	})[0])
}

// shardActivations annotates the activations between layers, [rows, tokens, Width], with their
// sharding.
func (c Config) shardActivations(x *graph.Node) *graph.Node {
	if c.ShardByTokens {
		return logical.SplitOver(x, "", "logical", "")
	}
	return logical.Replicate(x)
}

// outputProjection computes the output layer of an attention or feed-forward block. The features of
// x (dimension 2) are sharded over the logical devices. With ShardByTokens it uses Einsum, because
// GoMLX's dense layer merges rows and tokens into one dimension and so prevents sharding by tokens.
func (c Config) outputProjection(scope *model.Scope, x *graph.Node) *graph.Node {
	if !c.ShardByTokens {
		return c.shardActivations(layers.Dense(scope, x, false, c.Width))
	}
	w := scope.In("dense").VariableWithShape("weights", shapes.Make(x.DType(), x.Shape().Dim(-1), c.Width))
	return c.shardActivations(graph.Einsum("btf,fw->btw", x, w.NodeValue(x.Graph())))
}

// gatherTokens annotates the input of a layer with a sharding in which every logical device has all
// tokens.
func (c Config) gatherTokens(x *graph.Node) *graph.Node {
	if c.ShardByTokens {
		return logical.Replicate(x)
	}
	return x
}

// shardFeatures annotates values within a layer. They are sharded by dimension 2, the heads or
// hidden features, and not by tokens.
func (c Config) shardFeatures(x *graph.Node) *graph.Node {
	if !c.ShardByTokens {
		return x
	}
	dims := make([]string, x.Rank())
	dims[2] = "logical"
	return logical.SplitOver(x, dims...)
}
