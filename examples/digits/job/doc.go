// Package job trains a classifier of handwritten digits with tpustrategy. It is the example behind
// `make run`, as a library: command digits is its face.
//
// # The model
//
// One hidden layer and an output layer, of GoMLX's ([Loss]). The hidden layer is split over the
// logical devices of a replica ([Variables]): each holds a slice of its weights, biases and
// activations, and of Adam's moments.
//
// # The data
//
// [Digits] are the 1,797 digits that the module carries, [MNIST] a directory of MNIST's IDX files.
// A seed decides the split, the order of the batches and the initial weights, so that a run can be
// repeated.
//
// # The run
//
// [Run] opens the devices and does everything; [Train] runs on devices that are open. The loop is
// that of package strategy/fit, with its hooks for the bar, for checkpoints and for a loss that is
// not finite. Both return what they have when ctx ends.
package job
