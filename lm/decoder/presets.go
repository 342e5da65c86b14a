// Package decoder is the model of command gpt: a transformer in the form of Llama's, made of GoMLX's
// layers. The layers are a loop of the program, the matrices are split over the logical devices
// ([Rules]), and the sizes are a value ([Config]), of which [Preset] has four.
package decoder

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Config is the size of a decoder and of its batches.
type Config struct {
	Name                 string // of the preset
	Layers, Width, Heads int
	KeyHeads             int // heads of keys and values
	Hidden               int // features between the dense layers
	Vocabulary, Sequence int
	Batch                int     // rows of a step, over all replicas
	Theta, Epsilon       float64 // of the rotary positions and of the norms
	Form                         // of the computation
}

var presets = []Config{
	{"tiny", 3, 128, 4, 4, 352, 2048, 128, 16, 1e4, 1e-6, Form{}},
	{"125m", 12, 768, 12, 12, 2048, 25600, 1024, 32, 1e4, 1e-6, Form{}},
	{"1b3", 24, 2048, 16, 16, 5504, 32000, 2048, 32, 1e4, 1e-5, Form{}},
	{"llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192, 32, 5e5, 1e-5, Form{}},
}

// Preset returns the size of a name: tiny, 125m, 1b3 or llama3-8b.
func Preset(name string) (Config, error) {
	var names []string
	for _, c := range presets {
		if names = append(names, c.Name); c.Name == name {
			return c, nil
		}
	}
	return Config{}, wrong("there are "+strings.Join(names, ", "), "no preset %q", name)
}

// Check says whether replicas of logical devices can share a step of so many microbatches.
func (c Config) Check(replicas, logicalDevices, microbatches int) error {
	parts := max(replicas, 1) * max(microbatches, 1)
	for i, n := range []int{c.Batch, c.Heads, c.KeyHeads, c.Hidden, c.Vocabulary} {
		if n < 1 || n%parts != 0 {
			what := []string{"rows of a batch", "heads", "heads of keys", "hidden features", "tokens of the vocabulary"}[i]
			return wrong("take numbers that divide", "%d %s cannot be cut into %d equal parts", n, what, parts)
		}
		parts = max(logicalDevices, 1)
	}
	return nil
}

// Windows returns the shape of a step's argument: what the model reads, and one token more.
func (c Config) Windows() shapes.Shape { return shapes.Make(dtypes.Int32, c.Batch, c.Sequence+1) }

// Parameters returns the number of parameters.
func (c Config) Parameters() int {
	layer := 2*c.Width*c.Head()*(c.Heads+c.KeyHeads) + 3*c.Width*c.Hidden + 2*c.Width
	return c.Layers*layer + 2*c.Vocabulary*c.Width + c.Width
}

func wrong(hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "gpt", Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}
