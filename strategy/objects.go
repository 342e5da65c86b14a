package strategy

import "fmt"

// Objects is a per-replica value that is no tensor: one Go value for each replica,
// in replica order. It is immutable.
type Objects struct{ values []any }

// NewObjects makes one of the replicas' values.
func NewObjects(values ...any) *Objects { return &Objects{values: append([]any(nil), values...)} }

// At returns a replica's value.
func (o *Objects) At(replica int) any { return o.values[replica] }

// Len is the number of replicas.
func (o *Objects) Len() int { return len(o.values) }

// String lists the values.
func (o *Objects) String() string { return fmt.Sprintf("PerReplica%v", o.values) }
