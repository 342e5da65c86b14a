package logical

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// builtin are the sets of rules that have a name, over the replicas and over the axis of the mesh
// within a replica.
var builtin = map[string]func(model string) Rules{
	"fsdp":     func(string) Rules { return Rules{shareAll(ShardParameters)} },
	"zero1":    func(string) Rules { return Rules{shareAll(ShardOptimizer)} },
	"zero2":    func(string) Rules { return Rules{shareAll(ShardGradients)} },
	"megatron": megatron,
}

func shareAll(state StateSharding) Rule {
	r := Share("", state)
	r.Optional = true
	return r
}

// megatron splits the layers of GoMLX's transformers and feed-forward networks by pairs: the first of
// a pair by its outputs, the second by its inputs, so that one sum ends both. Scopes are those of
// package zoo/transformer, layers/attention and layers/fnn, and names that models from elsewhere
// have.
func megatron(model string) Rules {
	rule := func(pattern string, dims ...string) Rule {
		return Rule{Pattern: regexp.MustCompile(pattern), Annotation: Over(dims...), Optional: true}
	}
	const columns = `/(query|key|value|q|k|v|q_proj|k_proj|v_proj|ff1|gate|up|gate_proj|up_proj|head|lm_head)/dense`
	const rows = `/(MultiHeadAttention/output|attn/output|out|o_proj|ff2|down|down_proj)/dense`
	return Rules{
		rule(columns+`/weights$`, "", model),
		rule(columns+`/biases$`, model),
		rule(rows+`/weights$`, model, ""),
		rule(rows+`/biases$`, ""), // added after the sum
		rule(`/qkv/weights_qkv$`, "", model),
		rule(`/qkv/biases_[qkv]$`, model),
		rule(`/fnn_hidden_layer_\d*[02468]/weights$`, "", model),
		rule(`/fnn_hidden_layer_\d*[02468]/biases$`, model),
		rule(`/fnn_hidden_layer_\d*[13579]/weights$`, model, ""),
		rule(`/output/dense/weights$`, "", model), // the logits; the output of attention is above
		rule(`/output/dense/biases$`, model),
		rule(`/embeddings$`, model, ""),
		// A vocabulary that does not divide: the width does.
		{Pattern: regexp.MustCompile(`/embeddings$`), Largest: []string{model}, Optional: true},
	}
}

// BuiltinRules returns the rules of a built-in set for a mesh:
//
//	fsdp      Share("", ShardParameters)
//	zero2     Share("", ShardGradients)
//	zero1     Share("", ShardOptimizer)
//	megatron  attention, feed-forward layers and embeddings of GoMLX's transformers and fnn over
//	          the axis "model" or "logical", or else the last axis of the mesh
//
// Names with '+' between them, as "megatron+fsdp", are sets one after the other. All rules are
// Optional.
func BuiltinRules(name string, mesh sharding.Mesh) (Rules, error) {
	var rules Rules
	for part := range strings.SplitSeq(name, "+") {
		set, ok := builtin[part]
		if !ok {
			return nil, &RuleError{File: name, Rule: -1, Reason: fmt.Sprintf("%q is no built-in set", part),
				Hint: "the built-in sets are " + strings.Join(BuiltinNames(), ", ") + "; a file of rules has a name that ends in .json"}
		}
		rules = append(rules, set(modelAxis(mesh))...)
	}
	return rules, nil
}

// modelAxis returns the axis within a replica that layers are split over.
func modelAxis(mesh sharding.Mesh) string {
	names := mesh.AxisNames()
	for _, name := range []string{"model", AxisName} {
		if slices.Contains(names, name) {
			return name
		}
	}
	if len(names) == 0 {
		return AxisName
	}
	return names[len(names)-1]
}

// BuiltinNames returns the names of the built-in sets, sorted.
func BuiltinNames() []string { return slices.Sorted(maps.Keys(builtin)) }
