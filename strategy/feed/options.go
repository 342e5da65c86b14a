package feed

import (
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Partial selects how a feed treats a batch that does not fill all replicas.
type Partial uint8

const (
	// Exact feeds the batch unchanged, and the step is also compiled for its shape. Next returns
	// [ErrPartial] if replicas have different numbers of rows, and with several processes for any
	// short batch.
	Exact Partial = iota
	// Pad pads the tensors of every replica with zeros to the same number of rows, and adds to each
	// batch a mask of the rows with data.
	Pad
	// Uneven feeds the batch unchanged, even if replicas have different numbers of rows. A training
	// step computes the exact mean over such a batch, and a function with strategy.MaskPadding
	// accepts it. Uneven only supports one process.
	Uneven
)

func (p Partial) String() string { return enum.Name(p, "Exact", "Pad", "Uneven") }

// Options configure a feed. The zero value keeps two batches ready and feeds partial batches
// unchanged.
type Options struct {
	// Depth is the number of batches that are ready or being copied, in addition to the batch that
	// Next returned. Each uses the device memory of a batch. 0 means 2, and the maximum is 65536.
	// The feed reads more when half of the ready batches are used. A greater depth helps if the
	// input is occasionally slow.
	Depth int
	// Partial selects how a short batch is fed.
	Partial Partial
	// Rows is the number of rows of a replica to which [Pad] pads. 0 means the dataset's largest
	// number of rows of a replica, or that of the first batch if the dataset's is not known.
	Rows int
	// EndsTogether states that all processes run out of data at the same step, if the dataset does
	// not show this, as for files with equal numbers of records. See [ErrVote].
	EndsTogether bool
	// Start is the position at which the feed starts: a result of [Feed.State], or of
	// input.JoinStates for the states of all processes, whose numbers of processes and replicas may
	// differ. Zero is the beginning.
	Start input.State
}

func optionError(name, reason, hint string) error {
	return &errkind.Fault{Op: "feed: option " + name, Reason: reason, Hint: hint, Class: errkind.ValueError}
}

// ErrPartial reports a batch that cannot be fed unchanged.
var ErrPartial = errkind.New(errkind.ValueError, "feed: the batch cannot be fed as it is")
