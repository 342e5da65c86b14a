package feed

import (
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Partial says how a feed treats a batch that does not fill all replicas.
type Partial uint8

const (
	// Exact feeds the batch as it is. The step is compiled for its shape, too. Where replicas have
	// different numbers of rows, and for any short batch with several processes, Next returns
	// [ErrPartial].
	Exact Partial = iota
	// Pad fills every replica's part with zeros up to the same number of rows, and gives each batch
	// a mask of the rows that hold data.
	Pad
	// Uneven feeds the batch as it is, also where replicas have different numbers of rows, which
	// the values know. A training step takes the exact mean over such a batch; a function takes it
	// with strategy.MaskPadding. Uneven works with one process only.
	Uneven
)

// String returns the constant's name.
func (p Partial) String() string { return enum.Name(p, "Exact", "Pad", "Uneven") }

// Options configure a feed. The zero value keeps two steps ready and feeds partial batches as they
// are.
type Options struct {
	// Depth is the number of steps that are ready or on their way, beyond the step that was handed
	// out; 0 means 2, and the most is 65536. Each takes the device memory of a batch. The feed reads on when half of the
	// ready steps, or of two steps both, are used up: a greater depth evens out an input that is
	// slow now and then.
	Depth int
	// Partial says what to do with a short batch.
	Partial Partial
	// Rows is the number of rows of a replica that [Pad] fills up to. 0 means the dataset's largest
	// share of a replica, or, if that is not known, the share of the first batch.
	Rows int
	// EndTogether states that all processes run out of data at the same step where the dataset does
	// not show it, for example with files of equally many records. See [ErrVote].
	EndTogether bool
	// From is the position to start at, as [Feed.State] returned it, or as input.JoinStates made it
	// of those of all processes, which the number of processes and of replicas may change after; zero
	// is the beginning.
	From input.State
}

// option is the error of an option that does not fit.
func option(name, reason, hint string) error {
	return &errkind.Fault{Op: "feed: option " + name, Reason: reason, Hint: hint, Class: errkind.ValueError}
}

// ErrPartial is matched by a batch that cannot be fed as it is.
var ErrPartial = errkind.New(errkind.ValueError, "feed: the batch cannot be fed as it is")
