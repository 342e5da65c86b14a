package feed

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// Batch is the input of one step, on the devices. It belongs to its feed.
type Batch struct {
	// Index is the step's number in the input, from 0.
	Index int64
	// Values are the components, in the order of the element's leaves. The first dimension of a
	// replica's tensor counts its rows.
	Values []*strategy.PerReplica
	// Paths are the names of the components.
	Paths []string
	// Mask marks the rows that hold data: a bool tensor of dimensions [rows] on each replica. It is
	// nil unless batches are padded.
	Mask *strategy.PerReplica
	// Rows are the numbers of rows that hold data, of each of this process's replicas.
	Rows []int

	// shared says that the mask is the feed's, for all full batches.
	shared bool
}

// Args returns the batch as a step's arguments: the values, then the mask if there is a mask.
func (b *Batch) Args() []any {
	args := make([]any, 0, len(b.Values)+1)
	for _, v := range b.Values {
		args = append(args, v)
	}
	if b.Mask != nil {
		args = append(args, b.Mask)
	}
	return args
}

// failed returns the error of the batch's step.
func (b *Batch) failed(cause error) error { return failed(fmt.Sprintf("step %d", b.Index), cause) }

// close releases the batch, if there is one.
func (b *Batch) close() error {
	if b == nil {
		return nil
	}
	var errs []error
	for _, v := range b.Values {
		errs = append(errs, v.Close())
	}
	if b.Mask != nil && !b.shared {
		errs = append(errs, b.Mask.Close())
	}
	return errors.Join(errs...)
}
