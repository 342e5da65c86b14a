package feed

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// Batch has the input of one step on the devices. The feed owns the batch.
type Batch struct {
	// Index is the number of the step in the input, from 0.
	Index int64
	// Values are the components of the batch, in the order of the element's leaves, and Paths are
	// their names. Dimension 0 of a replica's tensor counts its rows.
	Values []*strategy.PerReplica
	Paths  []string
	// Mask is true for the rows with data: a bool tensor of shape [rows] on each replica. It is nil
	// unless batches are padded.
	Mask *strategy.PerReplica
	// Rows is the number of rows with data, for each replica of this process.
	Rows []int

	// sharesMask reports whether Mask is the feed's mask for all full batches.
	sharesMask bool
}

// Args returns the arguments for a step: the values, followed by the mask if the batch has one.
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

func (b *Batch) stepError(cause error) error {
	return wrapError(fmt.Sprintf("step %d", b.Index), cause)
}

func (b *Batch) close() error {
	if b == nil {
		return nil
	}
	var errs []error
	for _, v := range b.Values {
		errs = append(errs, v.Close())
	}
	if b.Mask != nil && !b.sharesMask {
		errs = append(errs, b.Mask.Close())
	}
	return errors.Join(errs...)
}
