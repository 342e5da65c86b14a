package logical

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// builtinRuleSets maps the name of a built-in set to a function that returns its rules. The
// argument is the axis for model parallelism.
var builtinRuleSets = map[string]func(model string) Rules{
	"fsdp":     func(string) Rules { return Rules{fullStateRule(ShardParameters)} },
	"zero1":    func(string) Rules { return Rules{fullStateRule(ShardOptimizer)} },
	"zero2":    func(string) Rules { return Rules{fullStateRule(ShardGradients)} },
	"megatron": megatronRules,
}

func fullStateRule(state StateSharding) Rule {
	r := MatchState("", state)
	r.Optional = true
	return r
}

// megatronRules splits the layers of GoMLX's transformers and feed-forward networks in pairs: the
// first layer of a pair by its outputs and the second by its inputs, so that each pair needs only
// one all-reduce. The patterns cover the scopes of the packages zoo/transformer, layers/attention
// and layers/fnn, and common names of imported models.
func megatronRules(model string) Rules {
	rule := func(pattern string, dims ...string) Rule {
		return Rule{Pattern: regexp.MustCompile(pattern), Annotation: SplitOverAxes(dims...), Optional: true}
	}
	const columns = `/(query|key|value|q|k|v|q_proj|k_proj|v_proj|ff1|gate|up|gate_proj|up_proj|head|lm_head)/dense`
	const rows = `/(MultiHeadAttention/output|attn/output|out|o_proj|ff2|down|down_proj)/dense`
	return Rules{
		rule(columns+`/weights$`, "", model),
		rule(columns+`/biases$`, model),
		rule(rows+`/weights$`, model, ""),
		rule(rows+`/biases$`, ""), // added after the all-reduce
		rule(`/qkv/weights_qkv$`, "", model),
		rule(`/qkv/biases_[qkv]$`, model),
		rule(`/fnn_hidden_layer_\d*[02468]/weights$`, "", model),
		rule(`/fnn_hidden_layer_\d*[02468]/biases$`, model),
		rule(`/fnn_hidden_layer_\d*[13579]/weights$`, model, ""),
		rule(`/output/dense/weights$`, "", model), // the logits; rows matches the output of attention
		rule(`/output/dense/biases$`, model),
		rule(`/embeddings$`, model, ""),
		// Split the width if the size of the vocabulary is not divisible.
		{Pattern: regexp.MustCompile(`/embeddings$`), Largest: []string{model}, Optional: true},
	}
}

// BuiltinRules returns the rules of a built-in set for a mesh:
//
//	fsdp      MatchState("", ShardParameters)
//	zero2     MatchState("", ShardGradients)
//	zero1     MatchState("", ShardOptimizer)
//	megatron  splits attention, feed-forward layers and embeddings of GoMLX's transformers and fnn
//	          over the axis "model" or "logical", or else over the last axis of the mesh
//
// Several names can be joined by "+", as in "megatron+fsdp"; the sets are concatenated. All
// built-in rules are Optional.
func BuiltinRules(name string, mesh sharding.Mesh) (Rules, error) {
	var rules Rules
	for part := range strings.SplitSeq(name, "+") {
		set, ok := builtinRuleSets[part]
		if !ok {
			return nil, &RuleError{File: name, Rule: -1, Reason: fmt.Sprintf("there is no built-in set %q", part),
				Hint: "use one of " + strings.Join(BuiltinNames(), ", ") + ", or a file whose name ends in .json"}
		}
		rules = append(rules, set(modelAxis(mesh))...)
	}
	return rules, nil
}

// modelAxis returns the axis over which the built-in rules split layers: "model" or "logical", or
// else the last axis.
func modelAxis(mesh sharding.Mesh) string {
	names := mesh.AxisNames()
	for _, name := range []string{"model", LogicalAxis} {
		if slices.Contains(names, name) {
			return name
		}
	}
	if len(names) == 0 {
		return LogicalAxis
	}
	return names[len(names)-1]
}

// BuiltinNames returns the names of the built-in sets in alphabetical order.
func BuiltinNames() []string { return slices.Sorted(maps.Keys(builtinRuleSets)) }
