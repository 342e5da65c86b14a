package corpus

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/ml/layers/kan"
)

// All returns the entries of the corpus.
func All() []Entry {
	return slices.Concat(languages(), images(), sequences(), tables(), single(), deep())
}

// sized returns an entry whose program is built from one size value.
func sized[T any](name string, replicas int, slice string, program func(T) Program, real, small T) Entry {
	return Entry{Name: name, Replicas: replicas, Logical: 8 / replicas, Slice: slice,
		Real: func() Program { return program(real) }, Small: func() Program { return program(small) }}
}

// made returns an entry with two functions that build its program.
func made(name string, replicas int, slice string, real, small func() Program) Entry {
	return Entry{Name: name, Replicas: replicas, Logical: 8 / replicas, Slice: slice, Real: real, Small: small}
}

func (e Entry) own() Entry {
	e.Own = true
	return e
}

func (e Entry) later() Entry {
	e.Later = true
	return e
}

func (e Entry) quick() Entry {
	e.Quick = true
	return e
}

const (
	half = dtypes.BFloat16
	full = dtypes.Float32
)

var smallText = text{rows: 8, length: 8, vocabulary: 32, width: 16, heads: 4, layers: 1, dtype: full}

func languages() []Entry {
	masked := func(n int) func(text) Program { return func(c text) Program { return bert(c, n) } }
	room := func(n int) func(mixture) Program { return func(c mixture) Program { return dispatched(c, n) } }
	smallMixture := mixture{8, 8, 32, 16, 32, 8, 2, full}
	return []Entry{
		sized("gpt", 4, "v5p:2x2x2", gpt, text{4, 2048, 50257, 4096, 32, 2, half}, smallText),
		sized("gpt-of-one-replica", 1, "v5p:2x2x2", gpt, text{2, 2048, 50257, 4096, 32, 1, half}, smallText).later(),
		sized("gpt-medium", 8, "v5e:2x4", gpt, text{8, 1024, 50257, 1024, 16, 2, full}, smallText).quick().later(),
		sized("bert-large", 4, "v5e:2x4", masked(80), text{32, 512, 30522, 1024, 16, 2, half}, smallText).quick(),
		sized("translator", 2, "v6e:2x4", translator, text{16, 256, 37000, 1024, 16, 1, full}, smallText),
		made("sampler", 2, "v5e:2x4", func() Program { return sampler(text{8, 1024, 50257, 2048, 16, 1, half}, 50) },
			func() Program { return sampler(smallText, 4) }).quick(),
		sized("experts-by-mask", 2, "v6e:2x4", mixed, mixture{4, 1024, 32000, 1024, 2816, 8, 2, half}, smallMixture).quick(),
		sized("experts-dispatched", 2, "v5p:2x2x2", room(1024), mixture{4, 1024, 32000, 2048, 5632, 16, 2, full},
			smallMixture).own(),
		made("llama", 4, "v5p:2x2x2", func() Program { return llama(text{4, 2048, 32000, 4096, 32, 1, half}, 8, 11008) },
			func() Program { return llama(smallText, 2, 32) }),
		made("gemma", 4, "v6e:2x4", func() Program { return gemma(text{4, 1024, 262144, 1152, 4, 1, half}, 1, 6912, 512) },
			func() Program { return gemma(smallText, 2, 32, 4) }),
		made("zoo-scores", 8, "v5e:2x4", func() Program { return scored(text{8, 512, 50257, 1024, 16, 2, full}, 4096) },
			func() Program { return scored(smallText, 32) }).quick(),
	}
}

func images() []Entry {
	small := pictures{8, 32, 16}
	imagenet := func(rows int) pictures { return pictures{rows, 224, 1000} }
	return []Entry{
		made("resnet-50", 8, "v5e:2x4", func() Program { return residual(imagenet(256), 64, []int{3, 4, 6, 3}, 1) },
			func() Program { return residual(small, 8, []int{1, 1}, 1) }).own(),
		made("resnext-50", 8, "v5p:2x2x2", func() Program { return residual(imagenet(64), 64, []int{3, 4, 6, 3}, 32) },
			func() Program { return residual(small, 8, []int{1, 1}, 4) }).own(),
		made("mobilenet", 8, "v6e:2x4", func() Program { return separable(imagenet(64), []int{32, 64, 128, 256, 512}) },
			func() Program { return separable(small, []int{8, 16}) }).own(),
		made("vgg-16", 4, "v5e:2x4", func() Program { return plain(imagenet(64), []int{64, 128, 256, 512, 512}, 4096) },
			func() Program { return plain(small, []int{4, 8}, 16) }).quick(),
		made("unet", 8, "v5e:2x4", func() Program { return unet(pictures{16, 256, 21}, []int{64, 128, 256, 512, 1024}) },
			func() Program { return unet(pictures{8, 16, 4}, []int{4, 8}) }).later(),
		made("vit", 4, "v6e:2x4", func() Program { return vit(imagenet(64), 16, 1024, 16, 2) },
			func() Program { return vit(small, 8, 16, 4, 1) }).quick(),
		made("mixer", 8, "v5e:2x4", func() Program { return mixer(imagenet(64), 16, 1024, 2) },
			func() Program { return mixer(small, 8, 16, 1) }).quick(),
	}
}

func sequences() []Entry {
	lstm := func(hidden int) func(text) Program { return func(c text) Program { return recurrent(c, hidden) } }
	ways := func(hidden, tags int) func(text) Program {
		return func(c text) Program { return tagged(c, hidden, tags) }
	}
	write := func(hidden int) func(text) Program { return func(c text) Program { return translating(c, hidden) } }
	smallLSTM := text{8, 4, 32, 8, 0, 1, full}
	return []Entry{
		made("lstm", 4, "v5e:2x4", func() Program { return lstm(1024)(text{64, 64, 33278, 1024, 0, 1, full}) },
			func() Program { return lstm(8)(smallLSTM) }),
		made("lstm-512-steps", 8, "v5p:2x2x2", func() Program { return lstm(1024)(text{64, 512, 10000, 1024, 0, 1, full}) },
			func() Program { return lstm(8)(smallLSTM) }).later(),
		made("lstm-both-ways", 8, "v6e:2x4", func() Program { return ways(1024, 50)(text{64, 32, 50000, 512, 0, 1, full}) },
			func() Program { return ways(8, 4)(smallLSTM) }).later(),
		made("lstm-translator", 8, "v5e:2x4", func() Program { return write(1000)(text{64, 24, 30000, 1000, 0, 1, full}) },
			func() Program { return write(8)(smallLSTM) }).later(),
		made("wavenet", 8, "v5e:2x4", func() Program { return dilated(8, 16384, 128, 10, 256) },
			func() Program { return dilated(8, 32, 8, 3, 16) }),
		made("loop", 4, "v5e:2x4", func() Program { return looped(64, 1024, 2048) },
			func() Program { return looped(8, 6, 8) }).quick(),
		made("spectral", 4, "v5e:2x4", func() Program { return spectral(16, 2048, 1024, 2) },
			func() Program { return spectral(8, 8, 16, 1) }).quick(),
	}
}

func tables() []Entry {
	smallNetwork := network{8, 16, 32, 4, 8, 2, 4}
	million := network{8, 1 << 17, 1 << 19, 128, 256, 2, 40}
	return []Entry{
		sized("graph-network", 8, "v5p:2x2x2", messages, network{8, 1 << 20, 1 << 22, 128, 256, 2, 40}, smallNetwork).quick(),
		sized("graph-network-split", 2, "v5p:2x2x2", messages, million, smallNetwork).quick().later(),
		sized("graph-attention", 8, "v5e:2x4", attending, million, smallNetwork).quick(),
		made("points", 4, "v6e:2x4", func() Program { return points(32, 2048, 20, 128, 40) },
			func() Program { return points(8, 16, 4, 8, 4) }).quick(),
		made("clicks", 2, "v5p:2x2x2", func() Program { return clicks(4096, 13, 26, 1000000, 128) },
			func() Program { return clicks(8, 4, 3, 16, 8) }),
		made("towers", 4, "v5p:2x2x2", func() Program { return towers(4096, 10000000, 1000000, 128) },
			func() Program { return towers(8, 32, 16, 8) }).quick(),
		made("sequential", 4, "v6e:2x4", func() Program { return sequential(128, 200, 1000000, 256, 8, 100) },
			func() Program { return sequential(8, 8, 32, 16, 4, 3) }).quick(),
		made("factors", 2, "v5e:2x4", func() Program { return factors(65536, 1000000, 100000, 256) },
			func() Program { return factors(8, 32, 16, 8) }).quick(),
		made("wide", 2, "v5e:2x4", func() Program { return wide(256, 1000000) },
			func() Program { return wide(8, 32) }).quick(),
		made("policy", 4, "v5e:2x4", func() Program { return policy(4096, 1024, 2048, 1000) },
			func() Program { return policy(8, 8, 16, 4) }).quick(),
	}
}

func single() []Entry {
	knots := map[string]func(c *kan.Config) *kan.Config{
		"bsplines": (*kan.Config).BSpline, "discrete": (*kan.Config).Discrete, "pieces": (*kan.Config).PiecewiseLinear,
		"rational": (*kan.Config).Rational,
	}
	kans := func(name string, width int) Entry {
		return made("kan-"+name, 8, "v5e:2x4", func() Program { return splines(256, width, width, knots[name]) },
			func() Program { return splines(8, 8, 8, knots[name]) })
	}
	rowsOf := func(name string, replicas int, program func(rows, width int) Program, width int) Entry {
		return made(name, replicas, "v5e:2x4", func() Program { return program(1024, width) },
			func() Program { return program(8, 64) }).quick()
	}
	return []Entry{
		made("fnn", 4, "v5e:2x4", func() Program { return forward(1024, 4096, 3) },
			func() Program { return forward(8, 16, 2) }).quick(),
		made("fnn-ensemble", 4, "v6e:2x4", func() Program { return ensemble(1024, 2048, 4) },
			func() Program { return ensemble(8, 16, 2) }).quick(),
		rowsOf("dropouts", 4, dropped, 2048).own(),
		rowsOf("normalisations", 2, normalised, 4096),
		rowsOf("batch-normalisations", 8, batchNormalised, 2048).own(),
		rowsOf("activations", 4, activated, 4096),
		made("attentions", 4, "v6e:2x4", func() Program { return attended(16, 1024, 1024, 16) },
			func() Program { return attended(8, 8, 16, 4) }).quick(),
		made("calibrations", 8, "v5e:2x4", func() Program { return calibrated(1024, 1024, 1000) },
			func() Program { return calibrated(8, 8, 5) }),
		kans("bsplines", 1024), kans("discrete", 1024), kans("pieces", 1024), kans("rational", 1024),
		rowsOf("rationals", 4, rationals, 2048),
		rowsOf("vectors", 4, rotated, 1024),
		made("losses", 2, "v5e:2x4", func() Program { return lost(1024, 1024, 1000) },
			func() Program { return lost(8, 8, 8) }).quick(),
		rowsOf("regions", 4, regions, 4096),
	}
}
