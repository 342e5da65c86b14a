package feed

import (
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Partial selects how a feed treats a batch that does not fill all replicas.
type Partial uint8

const (
	// Exact feeds the batch unchanged, and the step is also compiled for its shape. If replicas
	// have different numbers of rows, and for any short batch with several processes, Next returns
	// [ErrPartial].
	Exact Partial = iota
	// Pad pads every replica's part with zeros to the same number of rows, and adds to each batch a
	// mask of the rows with data.
	Pad
	// Uneven feeds the batch unchanged, also if replicas have different numbers of rows, which the
	// values record. A training step computes the exact mean over such a batch. A function accepts
	// it with strategy.MaskPadding. Uneven only supports one process.
	Uneven
)

// String returns the constant's name.
func (p Partial) String() string { return enum.Name(p, "Exact", "Pad", "Uneven") }

// Options configure a feed. The zero value keeps two batches ready and feeds partial batches
// unchanged.
type Options struct {
	// Depth is the number of batches that are ready or in transfer, in addition to the batch that
	// Next returned. 0 means 2, and the maximum is 65536. Each uses the device memory of a batch.
	// The feed reads more when half of the ready batches are used (with two batches, when both are
	// used). A greater depth compensates for an input that is occasionally slow.
	Depth int
	// Partial selects how a short batch is fed.
	Partial Partial
	// Rows is the number of rows of a replica to which [Pad] pads. 0 means the dataset's largest
	// share of a replica, or the share of the first batch if that is not known.
	Rows int
	// EndsTogether states that all processes run out of data at the same step. It is needed if the
	// dataset does not show this, for example for files with equal numbers of records. See
	// [ErrVote].
	EndsTogether bool
	// Start is the position at which the feed starts; zero is the beginning. It is a result of
	// [Feed.State], or of input.JoinStates for the states of all processes. The number of processes
	// and replicas may differ from those of the saved position.
	Start input.State
}

func optionError(name, reason, hint string) error {
	return &errkind.Fault{Op: "feed: option " + name, Reason: reason, Hint: hint, Class: errkind.ValueError}
}

// ErrPartial matches the error of a batch that cannot be fed unchanged.
var ErrPartial = errkind.New(errkind.ValueError, "feed: the batch cannot be fed as it is")
