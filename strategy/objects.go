package strategy

import "fmt"

// Objects is a per-replica value that is no tensor: one Go value for each replica, in replica
// order, like the tf.distribute.DistributedValues of such objects in TensorFlow. It is immutable.
type Objects struct{ values []any }

// NewObjects returns the Objects of the replicas' values, given in replica order.
func NewObjects(values ...any) *Objects { return &Objects{values: append([]any(nil), values...)} }

// At returns the value of a replica, from 0. It panics for a replica that has no value.
func (o *Objects) At(replica int) any { return o.values[replica] }

// Len returns the number of replicas.
func (o *Objects) Len() int { return len(o.values) }

// String lists the values.
func (o *Objects) String() string { return fmt.Sprintf("PerReplica%v", o.values) }
