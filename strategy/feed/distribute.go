package feed

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
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
	// A leaf without an annotation is whole on each logical device. The mask of [Pad] follows the
	// leaves. Each device receives only what it is to hold. An annotation that fits no tensor is
	// refused here, with an error that wraps a [*logical.Error]; one that does not fit a leaf is an
	// [*strategy.Error], which names the leaf and wraps such a one, when the batch is put on the
	// devices.
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
	for i, a := range o.Arguments {
		if err := a.ValidateOn(s.LogicalMesh(), fmt.Sprintf("component %d", i), a.PartsOn(s.LogicalMesh())); err != nil {
			return opts, &errkind.Fault{Op: "feed: option Arguments", Err: err}
		}
	}
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
func Distribute(s *strategy.TPUStrategy, ds input.Dataset, o DistributeOptions) (*input.DistributedDataset, error) {
	opts, err := o.of(s)
	if err != nil {
		return nil, err
	}
	return input.Distribute(ds, opts)
}

// DistributeAhead is [Distribute] for a [Feed], which runs ahead of the steps, so that the processes
// cannot vote on the end: data of which they may run out at different steps is an error that
// matches [ErrVote]. together states that they run out at the same one; see Options.EndTogether.
func DistributeAhead(s *strategy.TPUStrategy, ds input.Dataset, o DistributeOptions, together bool) (*input.DistributedDataset, error) {
	opts, err := o.of(s)
	if err != nil {
		return nil, failed("distribute the input", err)
	}
	if opts.AnyProcess != nil {
		opts.AnyProcess = alone
		if !together && ds.Info().Cardinality != input.Infinite {
			opts.AnyProcess = noVote
		}
	}
	d, err := input.Distribute(ds, opts)
	if err != nil {
		return nil, failed("distribute the input", err)
	}
	return d, nil
}

// DistributeFromFunction calls fn for this process's dataset of batches for single replicas, of
// which each replica takes the next: TensorFlow's experimental_distribute_datasets_from_function.
// It is input.FromFunction with the strategy's [strategy.TPUStrategy.InputOptions], and returns the
// errors of both.
func DistributeFromFunction(s *strategy.TPUStrategy, fn func(input.Context) (input.Dataset, error), o DistributeOptions) (*input.DistributedDataset, error) {
	opts, err := o.of(s)
	if err != nil {
		return nil, err
	}
	return input.FromFunction(fn, opts)
}
