package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// modelSize is the size of an example model. A zero field selects the model's default.
type modelSize struct {
	Width  int `json:"width,omitempty"`
	Layers int `json:"layers,omitempty"`
	// Batch is the global batch size or, in the default size of an example, that of each replica.
	Batch int `json:"batch,omitempty"`
	// Preset and Remat are the preset and the rematerialization policy. Only gpt uses them.
	Preset string `json:"preset,omitempty"`
	Remat  string `json:"remat,omitempty"`
	// Tokens shards the activations between the layers by tokens. Only gpt uses it.
	Tokens bool `json:"tokens,omitempty"`
}

// exampleModel is a predefined model, such as "gpt", that the commands can compile.
type exampleModel struct {
	name, about string
	size        modelSize
	// rules returns the rules that shard the variables over p logical devices.
	rules func(p int) logical.Rules
	// loss returns the loss function of a replica. Its inputs are the tensors of a batch.
	loss func(size modelSize) train.Loss
	// batch returns the shapes of a batch with the given number of rows.
	batch func(size modelSize, rows int) []shapes.Shape
	// sized is true if a preset determines the size of the model. checkFit returns an error if the
	// model and its batch cannot be divided over replicas of p logical devices.
	sized    bool
	checkFit func(size modelSize, replicas, p int) error
}

var exampleModels = []exampleModel{
	{
		name: "digits", about: "a classifier of images of 28x28: one hidden layer, split over the logical devices",
		size: modelSize{Width: 512, Layers: 1, Batch: 128}, rules: densePairRules, checkFit: checkWidth,
		loss: func(size modelSize) train.Loss {
			return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				h := densePairs(rc, in[0], size, 10)
				return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits(in[1:2], []*graph.Node{h}))
			}
		},
		batch: func(_ modelSize, rows int) []shapes.Shape {
			return []shapes.Shape{shapes.Make(dtypes.Float32, rows, 28*28), shapes.Make(dtypes.Int32, rows, 1)}
		},
	},
	{
		name: "dense", about: "pairs of dense layers, the first split by columns and the second by rows",
		size: modelSize{Width: 4096, Layers: 4, Batch: 128}, rules: densePairRules, checkFit: checkWidth,
		loss: func(size modelSize) train.Loss {
			return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				return graph.ReduceAllMean(graph.Square(graph.Sub(densePairs(rc, in[0], size, size.Width), in[1])))
			}
		},
		batch: func(size modelSize, rows int) []shapes.Shape {
			shape := shapes.Make(dtypes.Float32, rows, size.Width)
			return []shapes.Shape{shape, shape}
		},
	},
	{
		name:  "placement",
		about: "a little of everything: split, replicated and assigned tensors, and a region of one logical device",
		size:  modelSize{Width: 64, Layers: 1, Batch: 16}, checkFit: checkWidth,
		rules: func(p int) logical.Rules {
			return logical.Rules{
				logical.Match(`/hidden/.*weights`, logical.SplitInto(1, p)),
				logical.Match(`/output/.*weights`, logical.SplitInto(p, 1)),
			}
		},
		loss: func(size modelSize) train.Loss {
			return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				p := rc.Strategy().NumLogicalDevices()
				h := graph.Tanh(logical.Split(layers.Dense(rc.Scope("hidden"), in[0], true, size.Width), 1, p))
				h = logical.OnDevice(p-1, h, func(h *graph.Node) *graph.Node {
					return graph.Add(h, graph.Tanh(layers.Dense(rc.Scope("expert"), h, true, size.Width)))
				})
				h = logical.Assign(h, p/2)
				y := logical.Replicate(layers.Dense(rc.Scope("output"), h, true, 1))
				return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
			}
		},
		batch: func(size modelSize, rows int) []shapes.Shape {
			return []shapes.Shape{shapes.Make(dtypes.Float32, rows, size.Width), shapes.Make(dtypes.Float32, rows, 1)}
		},
	},
	gptModel,
}

// checkWidth returns an error if the width is not divisible by the number of logical devices.
func checkWidth(size modelSize, _, p int) error {
	if size.Width%p != 0 {
		return usageErrorf("--width", "give a multiple of --logical", "%d logical devices cannot share %d equally", p,
			size.Width)
	}
	return nil
}

// densePairRules shards the first layer of each pair by columns and the second layer by rows. Each
// pair then needs one all-reduce over the logical devices.
func densePairRules(p int) logical.Rules {
	return logical.Rules{
		logical.Match(`/up[0-9]*/.*weights`, logical.SplitInto(1, p)),
		logical.Match(`/up[0-9]*/.*biases`, logical.SplitInto(p)),
		logical.Match(`/down[0-9]*/.*weights`, logical.SplitInto(p, 1)),
	}
}

// densePairs builds a model of pairs of dense layers. The last layer has the given number of output
// features.
func densePairs(rc *strategy.ReplicaContext, x *graph.Node, size modelSize, outputs int) *graph.Node {
	p := rc.Strategy().NumLogicalDevices()
	for i := range size.Layers {
		width := size.Width
		if i == size.Layers-1 {
			width = outputs
		}
		h := layers.Dense(rc.Scope(fmt.Sprintf("up%d", i)), x, true, size.Width)
		h = graph.Max(logical.Split(h, 1, p), graph.ScalarZero(h.Graph(), h.DType()))
		x = logical.Replicate(layers.Dense(rc.Scope(fmt.Sprintf("down%d", i)), h, true, width))
	}
	return x
}

// findModel returns the example with the given name. The returned size has the defaults filled in.
func findModel(name string, size modelSize) (exampleModel, modelSize, error) {
	var names []string
	for _, m := range exampleModels {
		if m.name != name {
			names = append(names, m.name)
			continue
		}
		if err := m.checkOptions(size); err != nil {
			return m, size, err
		}
		if m.sized && size.Preset == "" {
			size.Preset = m.size.Preset
		}
		for _, pair := range []struct {
			flag       string
			value, def *int
		}{{"--width", &size.Width, &m.size.Width}, {"--layers", &size.Layers, &m.size.Layers}, {"--batch", &size.Batch,
			new(int)}} {
			switch {
			case *pair.value == 0:
				*pair.value = *pair.def
			case *pair.value < 0 || *pair.value > 1<<20:
				return m, size, usageErrorf("compile", fmt.Sprintf("give a number from 1 to %d", 1<<20), "%s %d", pair.flag,
					*pair.value)
			}
		}
		return m, size, nil
	}
	return exampleModel{}, size, usageErrorf("compile", "there are "+strings.Join(names, ", "), "no example model %q",
		name)
}

// rowsPerReplica returns the number of rows per replica, or 0 if the number depends on the preset.
func (m exampleModel) rowsPerReplica(size modelSize, replicas int) (int, error) {
	rows := cmp.Or(size.Batch, m.size.Batch*replicas)
	if rows%replicas != 0 {
		return 0, usageErrorf("compile", fmt.Sprintf("give a multiple of %d", replicas),
			"--batch: %d replicas cannot share %d rows equally", replicas, rows)
	}
	return rows, nil
}

// checkOptions returns an error if size contains options that the model does not support.
func (m exampleModel) checkOptions(size modelSize) error {
	if m.sized {
		for flag, value := range map[string]int{"--width": size.Width, "--layers": size.Layers} {
			if value != 0 {
				return usageErrorf("compile", "choose its size by --preset", "%s does not take %s", m.name, flag)
			}
		}
		return nil
	}
	for flag, value := range map[string]string{"--preset": size.Preset, "--remat": size.Remat} {
		if value != "" {
			return usageErrorf("compile", "leave it out, or give --example gpt", "%s does not take %s", m.name, flag)
		}
	}
	return nil
}

// trainStep returns a training step of the model with the optimizer Adam.
func (m exampleModel) trainStep(strat *strategy.TPUStrategy, size modelSize, policy precision.Policy,
	microbatches int) (*train.Step, error) {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	return train.New(strat, store, optimizer.Adam().LearningRate(1e-3).Done(), m.loss(size), train.Options{Name: m.name,
		Precision: policy, Accumulate: microbatches})
}
