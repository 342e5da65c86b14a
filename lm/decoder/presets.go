package decoder

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Config contains the sizes of a decoder and of its batches.
type Config struct {
	Name                 string // name of the preset
	Layers, Width, Heads int
	KeyHeads             int // number of heads of keys and values
	Hidden               int // number of hidden features of the dense layers
	Vocabulary, Sequence int
	Batch                int     // number of rows of a step, over all replicas
	RotaryBase, Epsilon  float64 // base of the rotary positions, epsilon of the norms
	ComputeOptions               // options of the computation
}

var presets = []Config{
	{"tiny", 3, 128, 4, 4, 352, 2048, 128, 16, 1e4, 1e-6, ComputeOptions{}},
	{"125m", 12, 768, 12, 12, 2048, 25600, 1024, 32, 1e4, 1e-6, ComputeOptions{}},
	{"1b3", 24, 2048, 16, 16, 5504, 32000, 2048, 32, 1e4, 1e-5, ComputeOptions{}},
	{"llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192, 32, 5e5, 1e-5, ComputeOptions{}},
}

// Preset returns the configuration tiny, 125m, 1b3 or llama3-8b. Another name is a ValueError.
func Preset(name string) (Config, error) {
	var names []string
	for _, c := range presets {
		if names = append(names, c.Name); c.Name == name {
			return c, nil
		}
	}
	return Config{}, valueError("there are "+strings.Join(names, ", "), "no preset %q", name)
}

// Validate returns a ValueError for a size that is not divisible by the number of replicas or
// logical devices.
func (c Config) Validate(replicas, logicalDevices, microbatches int) error {
	divisor := max(replicas, 1) * max(microbatches, 1)
	for i, n := range []int{c.Batch, c.Heads, c.KeyHeads, c.Hidden, c.Vocabulary} {
		if n < 1 || n%divisor != 0 {
			name := []string{"rows of a batch", "heads", "heads of keys", "hidden features", "tokens of the vocabulary"}[i]
			return valueError("choose sizes that are divisible", "%d %s cannot be divided into %d equal parts", n, name, divisor)
		}
		divisor = max(logicalDevices, 1)
	}
	return nil
}

// BatchShape returns the shape of the training step's argument: int32 [Batch, Sequence+1].
func (c Config) BatchShape() shapes.Shape { return shapes.Make(dtypes.Int32, c.Batch, c.Sequence+1) }

// Parameters returns the number of parameters of the model.
func (c Config) Parameters() int {
	layer := 2*c.Width*c.FeaturesPerHead()*(c.Heads+c.KeyHeads) + 3*c.Width*c.Hidden + 2*c.Width
	return c.Layers*layer + 2*c.Vocabulary*c.Width + c.Width
}

func valueError(hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "gpt", Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}
