package v1

import (
	"context"
	"maps"
	"slices"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// Options configures a [Strategy].
type Options struct {
	// Cluster maps jobs to the addresses of their tasks, as a cluster resolver returns them.
	// UpdateConfigProto copies it to a session's configuration.
	Cluster map[string][]string
}

// Strategy implements the methods of tf.compat.v1.distribute.Strategy for a strategy. It is safe
// for concurrent use.
type Strategy struct {
	*strategy.TPUStrategy
	cluster map[string][]string
}

// New returns a compat.v1 Strategy for a strategy. The caller must close the strategy.
func New(s *strategy.TPUStrategy, opts Options) *Strategy {
	return &Strategy{TPUStrategy: s, cluster: cloneCluster(opts.Cluster)}
}

// Extended has the methods of tf.compat.v1.distribute.StrategyExtended.
type Extended struct{ *eager.Extended }

// Extended returns the strategy's implementation of StrategyExtended.
func (s *Strategy) Extended() *Extended { return &Extended{eager.Of(s.TPUStrategy)} }

// Reduce combines a value over the replicas, like Strategy.reduce of compat.v1; see
// [eager.Extended.Reduce]. Omit axes where compat.v1 has None.
func (s *Strategy) Reduce(ctx context.Context, op strategy.ReduceOp, value any, axes ...int) (any, error) {
	return eager.Of(s.TPUStrategy).Reduce(ctx, op, value, axes...)
}

// ExperimentalRun reads the next element of the iterator and runs fn once for each replica, with
// the replica's part of the element as its argument. If the iterator is nil, fn has no argument. It
// is TensorFlow's experimental_run. At the end of the input the error is io.EOF.
//
// Deprecated: read the input from the iterator and use [eager.Extended.CallForEachReplica], or
// [strategy.Function.Run] with a compiled function.
func (s *Strategy) ExperimentalRun(ctx context.Context, fn eager.ReplicaFunc, it *InputIterator) (any, error) {
	if it == nil {
		return s.Extended().CallForEachReplica(ctx, fn)
	}
	next, err := it.GetNext(ctx)
	if err != nil {
		return nil, err
	}
	return s.Extended().CallForEachReplica(ctx, fn, next)
}

// ExperimentalRunV2 runs fn once for each replica. It is TensorFlow's experimental_run_v2, the name
// of Strategy.run before TensorFlow 2.2.
//
// Deprecated: use [eager.Extended.CallForEachReplica], or [strategy.Function.Run] with a compiled
// function.
func (s *Strategy) ExperimentalRunV2(ctx context.Context, fn eager.ReplicaFunc, args ...any) (any, error) {
	return s.Extended().CallForEachReplica(ctx, fn, args...)
}

// Unwrap returns one nested structure for each replica, with the replica's components of the
// distributed values in it. It is Strategy.unwrap, the earlier name of experimental_local_results.
//
// Deprecated: use [eager.Extended.LocalResultsOf].
func (s *Strategy) Unwrap(value any) ([]any, error) {
	return eager.Of(s.TPUStrategy).LocalResultsOf(value)
}

// ExperimentalMakeNumpyDataset returns a dataset of host arrays. It is TensorFlow's
// experimental_make_numpy_dataset. ctx must be in cross-replica context; see
// [eager.Extended.MakeNumpyDataset].
//
// Deprecated: use input.FromSlices.
func (s *Strategy) ExperimentalMakeNumpyDataset(ctx context.Context, nest any) (input.Dataset, error) {
	return s.Extended().ExperimentalMakeNumpyDataset(ctx, nest)
}

// ExperimentalMakeNumpyDataset returns a dataset of host arrays. It is TensorFlow's
// experimental_make_numpy_dataset without the session parameter. ctx must be in cross-replica
// context; see [eager.Extended.MakeNumpyDataset].
//
// Deprecated: use input.FromSlices.
func (e *Extended) ExperimentalMakeNumpyDataset(ctx context.Context, nest any) (input.Dataset, error) {
	if _, err := e.Scope(ctx); err != nil {
		return input.Dataset{}, err
	}
	return e.MakeNumpyDataset(nest)
}

// SessionConfig contains the fields of a TensorFlow session's configuration that a strategy sets.
// This module has no sessions; the type is for programs that pass the configuration to other code.
type SessionConfig struct {
	// IsolateSessionState isolates the state of a session from other sessions on the same server.
	IsolateSessionState bool
	// Cluster maps jobs to the addresses of their tasks.
	Cluster map[string][]string
}

// UpdateConfigProto returns a copy of a configuration with IsolateSessionState set and with the
// cluster of [Options], if there is one. It is TensorFlow's update_config_proto.
func (s *Strategy) UpdateConfigProto(config SessionConfig) SessionConfig {
	config.IsolateSessionState = true
	config.Cluster = cloneCluster(config.Cluster)
	if len(s.cluster) > 0 {
		config.Cluster = cloneCluster(s.cluster)
	}
	return config
}

// Configure updates a configuration in place like UpdateConfigProto. It is compat.v1's
// Strategy.configure. It ignores a nil configuration and the task of the process, because every
// process runs the same program.
func (s *Strategy) Configure(config *SessionConfig) {
	if config != nil {
		*config = s.UpdateConfigProto(*config)
	}
}

func cloneCluster(cluster map[string][]string) map[string][]string {
	out := maps.Clone(cluster)
	for job, addresses := range out {
		out[job] = slices.Clone(addresses)
	}
	return out
}
