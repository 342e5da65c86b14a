package generate

import (
	"cmp"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// setDefaults sets the default values and checks the options.
func (o *Options) setDefaults(s *strategy.TPUStrategy) error {
	for _, n := range []struct {
		name    string
		value   int
		minimum int
	}{
		{"Layers", o.Layers, 1}, {"KeyHeads", o.KeyHeads, 1}, {"HeadSize", o.HeadSize, 1}, {"Vocabulary", o.Vocabulary,
			2}, {"MaxLength", o.MaxLength, 2},
		{"BatchSize", o.BatchSize, 0}, {"TokensPerLaunch", o.TokensPerLaunch, 0}, {"PromptTokensPerLaunch",
			o.PromptTokensPerLaunch, 0},
	} {
		if n.value < n.minimum {
			return valueError("Options."+n.name, "set it to the value of the model", "it is %d, but must be at least %d",
				n.value, n.minimum)
		}
	}
	if err := o.Precision.Validate(); err != nil {
		return &errkind.Fault{Op: "generate", Subject: "Options.Precision", Class: errkind.ValueError, Err: err}
	}
	o.TokensPerLaunch, o.PromptTokensPerLaunch = min(cmp.Or(o.TokensPerLaunch, 32),
		o.MaxLength), min(cmp.Or(o.PromptTokensPerLaunch, 64), o.MaxLength)
	o.DType = cmp.Or(o.DType, o.Precision.Compute, dtypes.Float32)
	if !o.DType.IsFloat() {
		return valueError("Options.DType", "use a float dtype", "a cache of %s", o.DType)
	}
	if p := s.NumLogicalDevices(); o.CacheSharding.Kind() == logical.KindNone && p > 1 && o.KeyHeads%p == 0 {
		o.CacheSharding = logical.SplitInto(1, 1, p, 1, 1)
	}
	cacheShape := []int{o.Layers, o.rowsPerReplica(s), o.KeyHeads, o.MaxLength + o.PromptTokensPerLaunch, o.HeadSize}
	if parts := o.CacheSharding.PartsOn(s.LogicalMesh()); o.BatchSize == 0 && len(parts) > 1 {
		cacheShape[1] = parts[1] // the number of rows is not known before the first call
	}
	if err := o.CacheSharding.ValidateOn(s.LogicalMesh(), "the cache", cacheShape); err != nil {
		return &errkind.Fault{Op: "generate", Subject: "Options.CacheSharding", Class: errkind.ValueError, Err: err}
	}
	return nil
}

func (o *Options) rowsPerReplica(s *strategy.TPUStrategy) int {
	replicas := s.NumReplicasInSync()
	return (o.BatchSize + replicas - 1) / replicas
}

// checkPrompts returns an error for invalid prompts or an invalid sampling.
func (o *Options) checkPrompts(prompts [][]int32, s Sampling) error {
	if len(prompts) == 0 {
		return valueError("prompts", "pass at least one prompt", "there are no prompts")
	}
	if s.MaxTokens < 1 {
		return valueError("Sampling.MaxTokens", "set the maximum number of tokens", "it is %d", s.MaxTokens)
	}
	for i, prompt := range prompts {
		if len(prompt) == 0 {
			return valueError("prompts", "pass at least one token, such as the token for the beginning of a text",
				"prompt %d is empty", i)
		}
		if n := len(prompt); n+s.MaxTokens > o.MaxLength {
			return valueError("prompts", "shorten it, generate fewer tokens, or raise Options.MaxLength",
				"prompt %d has %d tokens and %d more are requested, but the cache has room for %d", i, n, s.MaxTokens, o.MaxLength)
		}
		if index := slices.IndexFunc(prompt, o.isUnknownToken); index >= 0 {
			return valueError("prompts", "use the tokenizer that the model was trained with",
				"token %d of prompt %d is %d, but the vocabulary has %d tokens",
				index, i, prompt[index], o.Vocabulary)
		}
	}
	return s.validate(o)
}

func (o *Options) isUnknownToken(token int32) bool { return token < 0 || int(token) >= o.Vocabulary }
