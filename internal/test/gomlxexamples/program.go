package gomlxexamples

import (
	"fmt"
	"path/filepath"
	"strings"
)

// program describes an example and the expected results of its runs.
type program struct {
	// name is the row name in the table. main is the package path below the examples module, or
	// below this folder if it starts with a dot.
	name, main string
	// arguments returns the command-line arguments.
	arguments func(place) []string
	// home is the name of a dataset and its folder in the home directory.
	home [2]string
	// steps is the number of losses of a run. If it is 0, the outputs are compared instead.
	steps int
	// bar is true if the program shows a progress bar, plots if it writes the points of its plots.
	bar, plots bool
	// unfinished is true if the program exits before its progress bar is full.
	unfinished bool
	// resumed is the number of steps of a second run that resumes from the checkpoint, or -1 if the
	// second run trains no steps. It is 0 if the program saves no checkpoints.
	resumed int
	// writes is a file that the program creates in the run's folder.
	writes string
	// tolerance is the largest difference between a loss and the loss on one device. It is relative
	// to the loss if the loss is larger than 1.
	tolerance float64
	// why is the reason for a tolerance larger than usual.
	why string
}

// usual is the default tolerance.
const usual = 1e-5

// path returns the program's package path for the go command.
func (p program) path() string {
	if strings.HasPrefix(p.main, ".") {
		return p.main
	}
	return module + "/" + p.main
}

// earlyStop is the step at which ./earlystop stops on every kind of device.
const earlyStop = 65

// place contains the data function, the output folder and the last step of a run.
type place struct {
	data  func(name string) string
	dir   string
	total int // the last step
}

func (p place) checkpoint() string { return filepath.Join(p.dir, "checkpoint") }

// settings returns the flags of the demos: data, checkpoint, and parameters of their store.
func settings(data, more string) func(place) []string {
	return func(p place) []string {
		return []string{"-data=" + p.data(data), "-checkpoint=" + p.checkpoint(), fmt.Sprintf("-set=train_steps=%d;%s",
			p.total, more)}
	}
}

func arguments(flags ...string) func(place) []string {
	return func(p place) []string {
		out := make([]string, len(flags))
		for i, flag := range flags {
			out[i] = replaced(flag, p)
		}
		return out
	}
}

// programs contains the rows of the table. The models are small to make the runs short.
var programs = []program{
	{name: "linear", main: "linear", arguments: arguments("-steps=TOTAL", "-num_examples=1024"), steps: 100, bar: true},
	{
		name: "gomlx.github.io/training (the tutorial's loop)", main: "gomlx.github.io/training",
		arguments: arguments("-data=DATA/adult", "-checkpoint=DIR/checkpoint"), steps: 1000, bar: true, plots: true,
		resumed: -1,
	},
	{
		name: "gomlx.github.io/core-concepts/training", main: "gomlx.github.io/core-concepts/training",
		arguments: arguments("-steps=TOTAL", "-output=DIR/reconstructed.png"), steps: 100, writes: "reconstructed.png",
	},
	{
		name: "gomlx.github.io/mnist/first-model", main: "gomlx.github.io/mnist/first-model", home: [2]string{"mnist",
			"mnist_data"},
		arguments: arguments(), steps: 100, bar: true, unfinished: true, resumed: 100,
	},
	{
		name: "mnist/demo, linear", main: "mnist/demo", arguments: settings("mnist",
			"model=linear;plots=true;batch_size=64;eval_batch_size=512"),
		steps: 100, bar: true, plots: true, resumed: 20,
	},
	{
		name: "mnist/demo, cnn with batch normalization", main: "mnist/demo",
		arguments: settings("mnist-small", "model=cnn;cnn_normalization=batch;plots=true;batch_size=16;eval_batch_size=64"),
		steps:     100, bar: true, plots: true, resumed: 20,
		tolerance: 1e-3, why: "each layer divides by the standard deviation of its batch, which amplifies rounding " +
			"errors. GoMLX's XLA backend on one device has equally large differences",
	},
	{
		name: "adult/demo, fnn", main: "adult/demo", arguments: settings("adult", "plots=true"),
		steps: 100, bar: true, plots: true, resumed: 20,
	},
	{
		name: "adult/demo, kan", main: "adult/demo", arguments: settings("adult", "plots=true;kan=true"),
		steps: 100, bar: true, plots: true, resumed: 20,
	},
	{
		name: "imdb/demo, bag of words", main: "imdb/demo",
		arguments: settings("imdb", "model=bow;plots=true;batch_size=32;imdb_content_max_len=40"), steps: 100, bar: true,
		plots: true, resumed: 20,
	},
	{
		name: "imdb/demo, cnn", main: "imdb/demo",
		arguments: settings("imdb", "model=cnn;plots=true;batch_size=32;imdb_content_max_len=40;cnn_num_layers=2"),
		steps:     100, bar: true, plots: true, resumed: 20,
	},
	{
		name: "imdb/demo, transformer", main: "imdb/demo",
		arguments: settings("imdb",
			"model=transformer;plots=true;batch_size=32;imdb_content_max_len=40;transformer_max_att_len=40"),
		steps: 100, bar: true, plots: true, resumed: 20,
	},
	{
		name: "cifar/demo, fnn", main: "cifar/demo",
		arguments: settings("cifar", "model=fnn;plots=false;batch_size=64;fnn_num_hidden_layers=2;fnn_num_hidden_nodes=32"),
		steps:     100, bar: true, resumed: 20,
	},
	{name: "textgen", main: "textgen", arguments: arguments("-set=train_steps=TOTAL;batch_size=16;seq_len=16"),
		steps: 100},
	{
		name: "early stop of the mnist example's linear model", main: "./earlystop",
		arguments: arguments("DATA/mnist-small", "DIR/checkpoint"), steps: earlyStop, bar: true, unfinished: true,
	},
	{name: "gomlx.github.io/computation-graph", main: "gomlx.github.io/computation-graph", arguments: arguments()},
	{name: "gomlx.github.io/core-concepts/graph", main: "gomlx.github.io/core-concepts/graph", arguments: arguments()},
	{name: "gomlx.github.io/core-concepts/overview", main: "gomlx.github.io/core-concepts/overview",
		arguments: arguments()},
	{name: "gomlx.github.io/core-concepts/store", main: "gomlx.github.io/core-concepts/store", arguments: arguments()},
	{name: "gomlx.github.io/core-concepts/tensors", main: "gomlx.github.io/core-concepts/tensors", arguments: arguments()},
	{name: "gomlx.github.io/debugging/logging", main: "gomlx.github.io/debugging/logging", arguments: arguments()},
	{name: "gomlx.github.io/debugging/nanlogger", main: "gomlx.github.io/debugging/nanlogger", arguments: arguments()},
}
