// Command mnist trains a convolutional classifier on MNIST, or on other images in the same file
// format.
package main

import (
	"context"
	"flag"
	"io"
	"os"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"

	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/input/digits"
	"github.com/tpustrategy/tpustrategy/input/idx"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func main() { os.Exit(trainer.Main("mnist", run)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("mnist", flag.ContinueOnError)
	f := trainer.AddFlags(flags, trainer.Defaults{Steps: 600, Devices: 8})
	data := flags.String("data", "", "folder of MNIST's files; by default 1,797 digits of 8x8 pixels")
	if err := f.Parse(args, stderr); err != nil {
		return err
	}
	training, test, err := idx.ReadTrainTest(*data, digits.IDX)
	if err != nil {
		return err
	}
	columns := logical.Match("/hidden/.*weights", logical.SplitOverAxes("", logical.LogicalAxis))
	logits := func(rc *strategy.ReplicaContext, images *graph.Node) *graph.Node { return logits(rc, images, f.Remat) }
	return f.Classify(ctx, trainer.Classifier{Logits: logits, Training: training, Test: test, Batch: 64,
		Variables: logical.Rules{columns}}, stdout)
}

// logits returns the scores of the 10 classes for a batch of images. All layers use the
// rematerialization policy keep.
func logits(rc *strategy.ReplicaContext, images *graph.Node, keep remat.Policy) *graph.Node {
	// The images are bytes, which no policy casts: their floats are in the dtype of the computation.
	x := precision.Compute(graph.ExpandAxes(graph.DivScalar(graph.ConvertDType(images, dtypes.Float32), 255), -1))
	for _, filters := range []int{32, 64} {
		x = remat.Block(keep, x, func(x *graph.Node) *graph.Node {
			x = layers.Convolution(rc.Scope("conv").In("%d", filters), x).Channels(filters).KernelSize(3).PadSame().Done()
			return graph.MaxPool(activation.Relu(x)).Window(2).Done()
		})
	}
	x = activation.Relu(layers.Dense(rc.Scope("hidden"), graph.Reshape(x, x.Shape().Dimensions[0], -1), true, 128))
	return layers.Dense(rc.Scope("logits"), x, true, 10)
}
