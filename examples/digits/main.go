// Command digits trains a classifier of handwritten digits on a mesh of replicas and logical
// devices. README.md shows its output.
package main

import (
	"context"
	"flag"
	"io"
	"os"

	"github.com/tpustrategy/tpustrategy/examples/digits/perceptron"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
)

func main() { os.Exit(trainer.Main("digits", run)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("digits", flag.ContinueOnError)
	f := trainer.AddFlags(flags, trainer.Defaults{Steps: 880, Devices: 8})
	data := flags.String("data", "", "folder of MNIST's files; by default 1,797 digits of 8x8 pixels")
	if err := f.Parse(args, stderr); err != nil {
		return err
	}
	c, err := perceptron.New(*data, f)
	if err != nil {
		return err
	}
	return f.Classify(ctx, c, stdout)
}
