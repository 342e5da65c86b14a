package weights

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/strictjson"
)

// Config contains the sizes of a decoder model like Llama or Gemma, as in Hugging Face's
// config.json.
type Config struct {
	// Type is "llama" or "gemma". It determines the normalization, the activation and the scaling
	// of the embeddings.
	Type string
	// Layers is the number of layers, Width the size of the hidden states, Heads the number of
	// query heads, KeyHeads the number of key and value heads, HeadSize the size of a head, Hidden
	// the width between the dense layers, and Vocabulary the number of tokens.
	Layers, Width, Heads, KeyHeads, HeadSize, Hidden, Vocabulary int
	// TiedEmbeddings reports that the head shares the embedding's tensor.
	TiedEmbeddings bool
	// Epsilon is added to the mean square in each normalization. RotaryBase is the base of the
	// wavelengths of the rotary positions.
	Epsilon, RotaryBase float64
	// RotaryScaling is the kind of scaling of the rotary positions, such as "llama3", or empty. The
	// model must implement it.
	RotaryScaling string
}

// maxConfigBytes limits the size of a config.json.
const maxConfigBytes = 1 << 20

// ReadConfig reads the config.json of a directory. Missing values have the defaults of Hugging
// Face's programs. Errors name the file. An error for a model type other than Llama and Gemma, or
// for dense layers with biases, has kind NotImplementedError.
func ReadConfig(dir string) (Config, error) {
	name := filepath.Join(dir, "config.json")
	fail := func(class errkind.Kind, err error, hint, format string, args ...any) (Config, error) {
		return Config{}, fileError(name, "", errkind.Fault{Reason: fmt.Sprintf(format, args...), Err: err, Class: class,
			Hint: hint})
	}
	text, err := files.ReadFile(name, maxConfigBytes)
	if err != nil {
		return fail(errkind.Unknown, err, "", "not read")
	}
	var j struct {
		Type       string  `json:"model_type"`
		Layers     int     `json:"num_hidden_layers"`
		Width      int     `json:"hidden_size"`
		Heads      int     `json:"num_attention_heads"`
		KeyHeads   *int    `json:"num_key_value_heads"`
		HeadSize   *int    `json:"head_dim"`
		Hidden     int     `json:"intermediate_size"`
		Vocabulary int     `json:"vocab_size"`
		Tied       *bool   `json:"tie_word_embeddings"`
		Epsilon    float64 `json:"rms_norm_eps"`
		Base       float64 `json:"rope_theta"`
		Scaling    *struct {
			Type string `json:"rope_type"`
			Old  string `json:"type"`
		} `json:"rope_scaling"`
		AttentionBias bool `json:"attention_bias"`
		DenseBias     bool `json:"mlp_bias"`
	}
	if err := strictjson.Unmarshal(text, &j); err != nil {
		return fail(errkind.DataLossError, err, "", "no JSON of a model")
	}
	if j.Type != "llama" && j.Type != "gemma" {
		return fail(errkind.NotImplementedError, nil, "write Rules for it", "a model of type %q; Llama and Gemma are ready",
			j.Type)
	}
	if j.AttentionBias || j.DenseBias {
		return fail(errkind.NotImplementedError, nil, "write Rules for it", "its dense layers have biases")
	}
	c := Config{Type: j.Type, Layers: j.Layers, Width: j.Width, Heads: j.Heads, KeyHeads: j.Heads, Hidden: j.Hidden,
		Vocabulary: j.Vocabulary,
		Epsilon:    cmp.Or(j.Epsilon, 1e-6), RotaryBase: cmp.Or(j.Base, 10000), TiedEmbeddings: j.Type == "gemma"}
	if j.KeyHeads != nil {
		c.KeyHeads = *j.KeyHeads
	}
	if c.Heads > 0 {
		c.HeadSize = c.Width / c.Heads
	}
	if c.Type == "gemma" {
		c.HeadSize = 256
	}
	if j.HeadSize != nil {
		c.HeadSize = *j.HeadSize
	}
	if j.Tied != nil {
		c.TiedEmbeddings = *j.Tied
	}
	if s := j.Scaling; s != nil {
		c.RotaryScaling = cmp.Or(s.Type, s.Old)
	}
	if err := c.validate(); err != nil {
		return fail(errkind.ValueError, err, "", "its sizes do not fit")
	}
	return c, nil
}

// Upper limits of the sizes, about ten times the sizes of the largest models.
const (
	maxDepth, maxWidth, maxHeads          = 1 << 14, 1 << 20, 1 << 16
	maxHeadSize, maxHidden, maxVocabulary = 1 << 16, 1 << 24, 1 << 24
)

// validate returns an error for implausible sizes, so that a malformed file cannot exhaust the
// memory, for example with 2^31 layers.
func (c Config) validate() error {
	bad := func(name, format string, args ...any) error {
		return &errkind.Fault{Op: name, Reason: fmt.Sprintf(format, args...), Class: errkind.ValueError}
	}
	for _, n := range []struct {
		name        string
		size, limit int
	}{{"layers", c.Layers, maxDepth}, {"width", c.Width, maxWidth}, {"heads", c.Heads, maxHeads},
		{"heads of keys", c.KeyHeads, maxHeads}, {"size of heads", c.HeadSize, maxHeadSize}, {"hidden width", c.Hidden,
			maxHidden}, {"vocabulary", c.Vocabulary, maxVocabulary}} {
		if n.size < 1 {
			return bad(n.name, "%d; at least 1", n.size)
		}
		if n.size > n.limit {
			return bad(n.name, "%d; at most %d", n.size, n.limit)
		}
	}
	// The condition is false for NaN.
	if !(c.Epsilon > 0 && c.Epsilon < 1) {
		return bad("rms_norm_eps", "%g; more than 0 and less than 1", c.Epsilon)
	}
	if !(c.RotaryBase >= 1 && c.RotaryBase <= math.MaxFloat32) {
		return bad("rope_theta", "%g; from 1 to the largest float32", c.RotaryBase)
	}
	if c.Heads%c.KeyHeads != 0 {
		return bad("", "%d heads do not share %d heads of keys evenly", c.Heads, c.KeyHeads)
	}
	return nil
}

// Tensors lists the tensors of the model with the names and shapes of Hugging Face. dtype is a
// dtype of safetensors such as "BF16". Use it to write a model that was not loaded from files.
func (c Config) Tensors(dtype string) (all []Tensor) {
	add := func(name string, shape ...int) {
		all = append(all, Tensor{Name: name + ".weight", DType: dtype, Shape: shape})
	}
	add("model.embed_tokens", c.Vocabulary, c.Width)
	for i := range c.Layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		add(layer+"input_layernorm", c.Width)
		add(layer+"self_attn.q_proj", c.Heads*c.HeadSize, c.Width)
		add(layer+"self_attn.k_proj", c.KeyHeads*c.HeadSize, c.Width)
		add(layer+"self_attn.v_proj", c.KeyHeads*c.HeadSize, c.Width)
		add(layer+"self_attn.o_proj", c.Width, c.Heads*c.HeadSize)
		add(layer+"post_attention_layernorm", c.Width)
		add(layer+"mlp.gate_proj", c.Hidden, c.Width)
		add(layer+"mlp.up_proj", c.Hidden, c.Width)
		add(layer+"mlp.down_proj", c.Width, c.Hidden)
	}
	add("model.norm", c.Width)
	if !c.TiedEmbeddings {
		add("lm_head", c.Vocabulary, c.Width)
	}
	return all
}
