package weights

// VariableNames specifies the paths and the layout of a decoder's variables. The zero value means
// [DenseNames].
type VariableNames struct {
	// Embedding is [vocabulary, width], Norm is [width] and Head is [width, vocabulary]. Head is
	// empty for a model that uses the embedding as its head.
	Embedding, Norm, Head string
	// Layer is the scope of a layer: "/layers" for stacked layers, or "/layer{1:02}" with the
	// number of the layer.
	Layer string
	// Stacked means that each variable stacks all layers in its first dimension, as with
	// loop.Layers.
	Stacked bool
	// HeadDims means that projections have a separate dimension for the heads: Query is [width,
	// heads, size] and Output is [heads, size, width]. Otherwise they are [width, heads*size] and
	// [heads*size, width].
	HeadDims bool
	// Paths of variables below Layer. Norm1 and Norm2 are [width]; Norm1 precedes the attention and
	// Norm2 precedes the dense layers. Gate and Up are [width, hidden], and Down is [hidden,
	// width].
	Norm1, Query, Key, Value, Output, Norm2, Gate, Up, Down string
	// Interleaved means that the model's rotary positions rotate elements 2i and 2i+1 of a head, as
	// in Meta's own code. Otherwise they rotate elements i and i + size/2, as the files of Hugging
	// Face expect. With Interleaved the rules reorder the elements of queries and keys.
	Interleaved bool
}

// DenseNames returns the names of a model with GoMLX's dense layers and RMS normalizations. All
// layers are in one loop in the scope "/layers". Examples are "/layers/query/dense/weights",
// "/layers/norm1/rms_norm/scale", "/embedding/embeddings", "/norm/rms_norm/scale" and
// "/head/dense/weights". For unrolled layers, set Layer to a scope with the number of the layer and
// Stacked to false.
func DenseNames() VariableNames {
	return VariableNames{
		Embedding: "/embedding/embeddings", Norm: "/norm/rms_norm/scale", Head: "/head/dense/weights",
		Layer: "/layers", Stacked: true,
		Norm1: "norm1/rms_norm/scale", Query: "query/dense/weights", Key: "key/dense/weights", Value: "value/dense/weights",
		Output: "out/dense/weights",
		Norm2:  "norm2/rms_norm/scale", Gate: "gate/dense/weights", Up: "up/dense/weights", Down: "down/dense/weights",
	}
}

// LlamaRules returns the rules for the files of a Llama model on Hugging Face, including Llama 3.
//
// Dense weights are transposed from [out, in] to [in, out]. The rows of queries and keys are
// ordered for rotary positions that rotate elements i and i + size/2 of a head, as in Hugging
// Face's programs. Set [VariableNames].Interleaved for models that rotate adjacent elements. Tables
// of rotary positions, which some files contain, are ignored. Meta's own files, with names such as
// "layers.0.attention.wq.weight", need other rules.
func LlamaRules(c Config, n VariableNames) Rules { return decoderRules(c, n, 0) }

// GemmaRules returns the rules for the files of a Gemma model (the first version) on Hugging Face.
// They equal [LlamaRules], except that 1 is added to the scales of the normalizations, because the
// files store the scales minus 1. The model itself must multiply the embeddings by the square root
// of the width, and use GELU (with tanh) in its dense layers.
func GemmaRules(c Config, n VariableNames) Rules { return decoderRules(c, n, 1) }

func decoderRules(c Config, n VariableNames, add float64) (rules Rules) {
	if n == (VariableNames{}) {
		n = DenseNames()
	}
	transposed := Step{Transpose: []int{1, 0}}
	rule := func(tensor string, to ...Target) { rules = append(rules, Rule{Tensor: tensor + `\.weight`, To: to}) }
	layer := func(tensor, name string, add float64, steps ...Step) {
		t := Target{Variable: n.Layer + "/" + name, Steps: steps, Add: add}
		if n.Stacked {
			t.Stack = "{1}"
		}
		rule(`model\.layers\.(\d+)\.`+tensor, t)
	}
	projection := func(tensor, name string, heads int, rotary bool) {
		var steps []Step
		if rotary && n.Interleaved {
			steps = append(steps, Step{Reshape: []int{heads, 2, c.HeadSize / 2, c.Width}}, Step{Transpose: []int{0, 2, 1, 3}})
		}
		switch {
		case n.HeadDims:
			steps = append(steps, Step{Reshape: []int{heads, c.HeadSize, c.Width}}, Step{Transpose: []int{2, 0, 1}})
		case steps != nil:
			steps = append(steps, Step{Reshape: []int{heads * c.HeadSize, c.Width}}, transposed)
		default:
			steps = append(steps, transposed)
		}
		layer(`self_attn\.`+tensor, name, 0, steps...)
	}
	embedding := []Target{{Variable: n.Embedding}}
	if c.TiedEmbeddings && n.Head != "" {
		embedding = append(embedding, Target{Variable: n.Head, Steps: []Step{transposed}})
	}
	rule(`model\.embed_tokens`, embedding...)
	layer(`input_layernorm`, n.Norm1, add)
	projection(`q_proj`, n.Query, c.Heads, true)
	projection(`k_proj`, n.Key, c.KeyHeads, true)
	projection(`v_proj`, n.Value, c.KeyHeads, false)
	out := []Step{transposed}
	if n.HeadDims {
		out = append(out, Step{Reshape: []int{c.Heads, c.HeadSize, c.Width}})
	}
	layer(`self_attn\.o_proj`, n.Output, 0, out...)
	layer(`post_attention_layernorm`, n.Norm2, add)
	layer(`mlp\.gate_proj`, n.Gate, 0, transposed)
	layer(`mlp\.up_proj`, n.Up, 0, transposed)
	layer(`mlp\.down_proj`, n.Down, 0, transposed)
	rule(`model\.norm`, Target{Variable: n.Norm, Add: add})
	if c.TiedEmbeddings {
		rules = append(rules, Rule{Tensor: `lm_head\.weight`, Ignore: true})
	} else {
		rule(`lm_head`, Target{Variable: n.Head, Steps: []Step{transposed}})
	}
	return append(rules, Rule{Tensor: `model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq`, Ignore: true})
}
