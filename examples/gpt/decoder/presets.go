package decoder

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/remat"
)

// Config is the size of a decoder and of its batches. It is a value.
type Config struct {
	Layers, Width, Heads int
	KeyHeads             int // heads of keys and values
	Hidden               int // features between the dense layers
	Vocabulary, Sequence int
	Batch                int     // rows of a step, over all replicas
	Theta, Epsilon       float64 // of the rotary positions and of the norms
	Keep                 remat.Policy
}

var presets = []struct {
	name string
	Config
}{
	{"tiny", Config{Layers: 4, Width: 128, Heads: 4, KeyHeads: 4, Hidden: 352, Vocabulary: 2048, Sequence: 256, Batch: 8, Theta: 1e4, Epsilon: 1e-6}},
	{"125m", Config{Layers: 12, Width: 768, Heads: 12, KeyHeads: 12, Hidden: 2048, Vocabulary: 25600, Sequence: 1024, Batch: 32, Theta: 1e4, Epsilon: 1e-6}},
	{"1b3", Config{Layers: 24, Width: 2048, Heads: 16, KeyHeads: 16, Hidden: 5504, Vocabulary: 32000, Sequence: 2048, Batch: 32, Theta: 1e4, Epsilon: 1e-5}},
	{"llama3-8b", Config{Layers: 32, Width: 4096, Heads: 32, KeyHeads: 8, Hidden: 14336, Vocabulary: 128256, Sequence: 8192, Batch: 32, Theta: 5e5, Epsilon: 1e-5}},
}

// Preset returns the size of a name: tiny, 125m, 1b3 or llama3-8b.
func Preset(name string) (Config, error) {
	var names []string
	for _, p := range presets {
		if names = append(names, p.name); p.name == name {
			return p.Config, nil
		}
	}
	return Config{}, wrong("there are "+strings.Join(names, ", "), "no preset %q", name)
}

// Check says whether replicas of logical devices can share a step of so many microbatches.
func (c Config) Check(replicas, logicalDevices, microbatches int) error {
	for _, v := range []struct {
		what     string
		n, parts int
	}{
		{"rows of a batch", c.Batch, max(replicas, 1) * max(microbatches, 1)}, {"heads", c.Heads, logicalDevices}, {"heads of keys", c.KeyHeads, logicalDevices},
		{"hidden features", c.Hidden, logicalDevices}, {"tokens of the vocabulary", c.Vocabulary, logicalDevices},
	} {
		if v.n < 1 || v.n%max(v.parts, 1) != 0 {
			return wrong("take numbers that divide", "%d %s cannot be cut into %d equal parts", v.n, v.what, v.parts)
		}
	}
	return nil
}

// Windows returns the shape of a step's argument: a row has one token more than the model reads, as
// each token is predicted from those before it.
func (c Config) Windows() shapes.Shape { return shapes.Make(dtypes.Int32, c.Batch, c.Sequence+1) }

// Parameters returns the number of parameters.
func (c Config) Parameters() int {
	layer := 2*c.Width*(c.Width+c.Width/c.Heads*c.KeyHeads) + 3*c.Width*c.Hidden + 2*c.Width
	return c.Layers*layer + 2*c.Vocabulary*c.Width + c.Width
}

func wrong(hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "gpt", Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}
