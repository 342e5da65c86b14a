package weights

// Names are the paths of a decoder's variables in a model, and how the variables lie. The zero value
// is that of [DenseNames].
type Names struct {
	// Embedding is [vocabulary, width], Norm [width] and Head [width, vocabulary]. Head is empty in
	// a model that takes the embedding for its head.
	Embedding, Norm, Head string
	// Layer is the scope of a layer, such as "/layers", or "/layer{1:02}" with the layer's number.
	Layer string
	// Stacked says that the variables of all layers are stacks, as those of loop.Layers are.
	Stacked bool
	// HeadDims says that projections keep their heads apart: Query is [width, heads, size] and
	// Output [heads, size, width]. Without it they are [width, heads*size] and [heads*size, width].
	HeadDims bool
	// The others are below the layer. Norm1 and Norm2 are [width], before the attention and before
	// the dense layers; Gate and Up are [width, hidden], Down is [hidden, width].
	Norm1, Query, Key, Value, Output, Norm2, Gate, Up, Down string
	// Interleaved says that the rotary positions of the model turn elements 2i and 2i+1 of a head,
	// as Meta's own code does. Without it they turn elements i and i + size/2, as the files of
	// Hugging Face are made for. The rules then put the elements of queries and keys in the order
	// that the model needs.
	Interleaved bool
}

// DenseNames returns the names of a model whose layers are GoMLX's dense layers and RMS
// normalisations, in a loop over layers in the scope "/layers": "/layers/query/dense/weights",
// "/layers/norm1/rms_norm/scale" and so on, "/embedding/embeddings", "/norm/rms_norm/scale" and
// "/head/dense/weights". Layers one after another have a Layer with their number, and are not
// Stacked.
func DenseNames() Names {
	return Names{
		Embedding: "/embedding/embeddings", Norm: "/norm/rms_norm/scale", Head: "/head/dense/weights", Layer: "/layers", Stacked: true,
		Norm1: "norm1/rms_norm/scale", Query: "query/dense/weights", Key: "key/dense/weights", Value: "value/dense/weights", Output: "out/dense/weights",
		Norm2: "norm2/rms_norm/scale", Gate: "gate/dense/weights", Up: "up/dense/weights", Down: "down/dense/weights",
	}
}

// Llama returns the rules for the files of a Llama model on Hugging Face, Llama 3 among them.
//
// Dense weights are turned from [out, in] to [in, out]. The rows of queries and keys are in the
// order of Hugging Face's rotary positions, which turn elements i and i + size/2 of a head;
// [Names].Interleaved is for models that turn neighbors. (The files of Meta itself, with names
// such as "layers.0.attention.wq.weight", are in the order of neighbors and need other rules.) The
// tables that some files have of rotary positions are ignored.
func Llama(c Config, n Names) Rules { return decoder(c, n, 0) }

// Gemma returns the rules for the files of a Gemma model (the first version) on Hugging Face. They
// are those of [Llama], but for the normalisations' scales, which the files have without the one
// that Gemma adds to them: the variables get it. Gemma multiplies embeddings by the root of the
// width, and its dense layers have GELU (by tanh): that is the model's to do.
func Gemma(c Config, n Names) Rules { return decoder(c, n, 1) }

func decoder(c Config, n Names, add float64) (rules Rules) {
	if n == (Names{}) {
		n = DenseNames()
	}
	turned := Step{Transpose: []int{1, 0}}
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
			steps = append(steps, Step{Reshape: []int{heads * c.HeadSize, c.Width}}, turned)
		default:
			steps = append(steps, turned)
		}
		layer(`self_attn\.`+tensor, name, 0, steps...)
	}
	embedding := []Target{{Variable: n.Embedding}}
	if c.Tied && n.Head != "" {
		embedding = append(embedding, Target{Variable: n.Head, Steps: []Step{turned}})
	}
	rule(`model\.embed_tokens`, embedding...)
	layer(`input_layernorm`, n.Norm1, add)
	projection(`q_proj`, n.Query, c.Heads, true)
	projection(`k_proj`, n.Key, c.KeyHeads, true)
	projection(`v_proj`, n.Value, c.KeyHeads, false)
	out := []Step{turned}
	if n.HeadDims {
		out = append(out, Step{Reshape: []int{c.Heads, c.HeadSize, c.Width}})
	}
	layer(`self_attn\.o_proj`, n.Output, 0, out...)
	layer(`post_attention_layernorm`, n.Norm2, add)
	layer(`mlp\.gate_proj`, n.Gate, 0, turned)
	layer(`mlp\.up_proj`, n.Up, 0, turned)
	layer(`mlp\.down_proj`, n.Down, 0, turned)
	rule(`model\.norm`, Target{Variable: n.Norm, Add: add})
	if c.Tied {
		rules = append(rules, Rule{Tensor: `lm_head\.weight`, Ignore: true})
	} else {
		rule(`lm_head`, Target{Variable: n.Head, Steps: []Step{turned}})
	}
	return append(rules, Rule{Tensor: `model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq`, Ignore: true})
}
