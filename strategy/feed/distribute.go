package feed

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// DistributeOptions say how data is dealt to processes and replicas. The zero value is automatic
// sharding and TensorFlow's rule for its case.
type DistributeOptions struct {
	// Policy says how files or elements are dealt to the processes, Rule how batches are cut among
	// the replicas.
	Policy input.Policy
	Rule   input.Rule
	// Epoch is the number of the first pass; each later pass has the next number.
	Epoch uint64
	// Arguments say how a replica's part of each tensor is split over its logical devices, in the
	// order of an element's leaves (members of a tuple in order, of a dictionary by ascending key).
	// A leaf without an annotation is whole on each logical device. Each device receives only what
	// it is to hold. An annotation that does not fit is an [*strategy.Error] that names the leaf
	// and wraps a [*logical.Error]; it comes when the batch is put on the devices.
	Arguments []logical.Annotation
	// KeepOnHost says that a [Feed] reads ahead, but copies a batch to the devices only when it is
	// asked for it: the batches that are ready take host memory, and no device memory. It is
	// TensorFlow's InputOptions.experimental_prefetch_to_device, negated. An [Iterator] never
	// copies ahead.
	KeepOnHost bool
}

func (o DistributeOptions) of(s *strategy.TPUStrategy) (input.Options, error) {
	opts, err := s.InputOptions()
	opts.Policy, opts.Rule, opts.Epoch = o.Policy, o.Rule, o.Epoch
	opts.KeepOnHost = o.KeepOnHost
	if len(o.Arguments) > 0 {
		opts.Layout = slices.Clone(o.Arguments)
	}
	return opts, err
}

// Distribute deals the global batches of a dataset to the replicas: TensorFlow's
// experimental_distribute_dataset. The dataset is batched with the global batch size, along
// dimension 0. Distribute is input.Distribute with the strategy's
// [strategy.TPUStrategy.InputOptions], and returns the errors of both. [Iterate] puts the batches
// on the devices, and [New] does so ahead of the step that takes them.
func Distribute(s *strategy.TPUStrategy, ds input.Dataset, o DistributeOptions) (*input.Distributed, error) {
	opts, err := o.of(s)
	if err != nil {
		return nil, err
	}
	return input.Distribute(ds, opts)
}

// DistributeFromFunction calls fn for this process's dataset of batches for single replicas, of
// which each replica takes the next: TensorFlow's experimental_distribute_datasets_from_function.
// It is input.FromFunction with the strategy's [strategy.TPUStrategy.InputOptions], and returns the
// errors of both.
func DistributeFromFunction(s *strategy.TPUStrategy, fn func(input.Context) (input.Dataset, error), o DistributeOptions) (*input.Distributed, error) {
	opts, err := o.of(s)
	if err != nil {
		return nil, err
	}
	return input.FromFunction(fn, opts)
}
