package input

import (
	"context"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// AutoShardPolicy specifies how processes divide a dataset. It is TensorFlow's
// tf.data.experimental.AutoShardPolicy, with the same values.
type AutoShardPolicy int8

const (
	// Off is TensorFlow's AutoShardPolicy.OFF: every process reads all data and splits all of it
	// between its own replicas.
	Off AutoShardPolicy = -1
	// Auto is TensorFlow's AutoShardPolicy.AUTO: it selects File if the dataset reads files, and
	// Data otherwise. Fewer files than processes are an error: Auto does not select Data in that
	// case.
	Auto AutoShardPolicy = 0
	// File is TensorFlow's AutoShardPolicy.FILE: process i of H reads the files whose index is i
	// modulo H. With one process it has no effect.
	File AutoShardPolicy = 1
	// Data is TensorFlow's AutoShardPolicy.DATA: every process reads all data and uses only the
	// parts of its own replicas.
	Data AutoShardPolicy = 2
	// Hint is TensorFlow's AutoShardPolicy.HINT: the dataset is divided at each
	// [Dataset.ShardHint], and nowhere else.
	Hint AutoShardPolicy = 3
)

// String returns the constant's name.
func (p AutoShardPolicy) String() string {
	names := [...]string{"Off", "Auto", "File", "Data", "Hint"}
	if i := int(p) + 1; i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("AutoShardPolicy(%d)", int8(p))
}

// shardSource applies a policy to a source. It returns a source of the data that the given process
// reads, and the policy that Auto selected. Under the policy Data every process reads the complete
// source, and the caller selects the parts of its replicas.
func shardSource(src Source, policy AutoShardPolicy, processes, process int) (Source, AutoShardPolicy, error) {
	switch policy {
	case Off, Data:
		return src, policy, nil
	case Hint:
		shard, err := applyShardHints(src, processes, process)
		return shard, Hint, err
	case File, Auto:
		if policy == File && processes == 1 {
			return src, File, nil
		}
		shard, err := shardFiles(src, processes, process)
		switch {
		case policy == Auto && errors.Is(err, ErrNotShardable):
			return src, Data, nil
		case processes == 1 && errors.Is(err, ErrTooFewFiles):
			return src, File, nil
		case processes == 1 && err == nil:
			return src, File, nil
		}
		return shard, File, err
	}
	return nil, policy, valueError("distribute", "use Auto, Off, File, Data or Hint", "unknown auto-shard policy %v",
		policy)
}

// ShardHint is the place in a pipeline where the policy [Hint] divides the data between processes.
// Distribute replaces it with Shard(processes, process), like TensorFlow's shard(SHARD_HINT,
// SHARD_HINT). With any other policy, opening the dataset is an error.
func (d Dataset) ShardHint() Dataset {
	return d.wrapSource(func(src Source) Source {
		return operation{src, keepInfo, func(context.Context, Source, Pass, State) (Iterator, error) {
			return nil, newFault(errkind.FailedPreconditionError, "shard hint", "use it, or Shard(num, index) instead",
				"the dataset was not given to Distribute with the policy Hint")
		}, true}
	})
}

func applyShardHints(src Source, num, index int) (Source, error) {
	c, ok := src.(compositeSource)
	if !ok {
		return src, nil
	}
	src, err := c.replaceInputs(func(input Source) (Source, error) { return applyShardHints(input, num, index) }, num == 1)
	if d, ok := src.(operation); ok && d.isShardHint {
		return Dataset{d.input}.Shard(num, index).src, err
	}
	return src, err
}
