package feed

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// DistributeOptions configure the distribution of data to processes and replicas. The zero value
// uses automatic sharding and TensorFlow's rule for splitting batches.
type DistributeOptions struct {
	// Policy selects how files or elements are distributed to the processes, and Rule how batches
	// are split over the replicas.
	Policy input.AutoShardPolicy
	Rule   input.SplitRule
	// Epoch is the number of the first pass; each later pass has the next number.
	Epoch uint64
	// Arguments specify how the tensors of each replica are split over its logical devices, in the
	// order of an element's leaves: tuple members in order, dictionary members by ascending key,
	// then the mask of [Pad]. A leaf without an annotation is replicated. An invalid annotation is
	// an error of the call that receives these options. An annotation that does not fit a leaf is
	// an [*strategy.Error], with the name of the leaf, when the batch is copied to the devices.
	// Both errors wrap a [*logical.Error].
	Arguments []logical.Annotation
	// KeepOnHost makes a [Feed] copy a batch to the devices only when Next is called, so that the
	// ready batches use no device memory. It is the negation of TensorFlow's
	// experimental_prefetch_to_device. An [Iterator] never copies ahead.
	KeepOnHost bool
}

func (o DistributeOptions) inputOptions(s *strategy.TPUStrategy) (input.Options, error) {
	opts, err := InputOptions(s)
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

// Distribute distributes the global batches of a dataset to the replicas, like TensorFlow's
// experimental_distribute_dataset. The dataset must be batched with the global batch size along
// dimension 0. Distribute returns the errors of input.Distribute and [InputOptions]. [Iterate]
// copies the batches to the devices when they are requested, and [New] copies them ahead.
func Distribute(s *strategy.TPUStrategy, ds input.Dataset, o DistributeOptions) (*input.DistributedDataset, error) {
	opts, err := o.inputOptions(s)
	if err != nil {
		return nil, err
	}
	return input.Distribute(ds, opts)
}

// DistributeAhead distributes the global batches of a dataset like [Distribute], but for a [Feed].
// A feed runs ahead of the steps, so the processes cannot vote on the end of the data. The error
// therefore matches [ErrVote] if the processes may run out of data at different steps. endsTogether
// states that all processes run out of data at the same step; see [Options].EndsTogether.
func DistributeAhead(s *strategy.TPUStrategy, ds input.Dataset, o DistributeOptions,
	endsTogether bool) (*input.DistributedDataset, error) {
	opts, err := o.inputOptions(s)
	if err != nil {
		return nil, wrapError("distribute the input", err)
	}
	if opts.AnyProcess != nil {
		opts.AnyProcess = localVote
		if !endsTogether && ds.Info().Cardinality != input.Infinite {
			opts.AnyProcess = refuseVote
		}
	}
	d, err := input.Distribute(ds, opts)
	if err != nil {
		return nil, wrapError("distribute the input", err)
	}
	return d, nil
}

// DistributeFromFunction calls fn to create the dataset of this process. Each element of the
// dataset is the batch for one replica, and in each step every replica receives the next element.
// It corresponds to TensorFlow's experimental_distribute_datasets_from_function. It returns the
// errors of input.FromFunction and [InputOptions].
func DistributeFromFunction(s *strategy.TPUStrategy, fn func(input.Context) (input.Dataset, error),
	o DistributeOptions) (*input.DistributedDataset, error) {
	opts, err := o.inputOptions(s)
	if err != nil {
		return nil, err
	}
	return input.FromFunction(fn, opts)
}
