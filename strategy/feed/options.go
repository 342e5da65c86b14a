package feed

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
)

// Partial is what becomes of a batch that does not fill all replicas.
type Partial uint8

const (
	// Exact feeds it as it is. The step compiles for its shape too. Replicas that
	// have different numbers of rows, and with several processes any short batch,
	// are a [*PartialError].
	Exact Partial = iota
	// Pad fills every replica's part up with zeros to the same number of rows, and
	// gives each batch a mask of the rows of the data.
	Pad
	// Uneven feeds it as it is too, also where replicas have different numbers of rows:
	// the values know them. A training step takes the exact mean over such a batch, a
	// function takes it with PadRagged. It is for one process.
	Uneven
)

// String returns the constant's name.
func (p Partial) String() string {
	switch p {
	case Exact:
		return "Exact"
	case Pad:
		return "Pad"
	case Uneven:
		return "Uneven"
	}
	return fmt.Sprintf("Partial(%d)", uint8(p))
}

// Options configure a feed. The zero value keeps two steps ready and feeds partial
// batches as they are.
type Options struct {
	// Depth is the number of steps that are ready or on their way beyond the one
	// handed out; 0 is 2. Each takes a batch of device memory. Once half of them, or
	// of two both, are used up the feed goes on to read: more of them even out an
	// input that is slow now and then.
	Depth int
	// Partial says what to do with a short batch.
	Partial Partial
	// Rows is the number of rows of a replica that [Pad] fills up to; 0 is the
	// dataset's largest share of a replica, or if that is not known the first
	// batch's.
	Rows int
	// Annotations say how the components of a replica's part are split over its
	// logical devices, in the order of the leaves. Missing ones are replicated; with
	// none at all the data's count, see strategy.DistributeOptions.
	Annotations []logical.Annotation
	// EndTogether is the caller's word that all processes run out of data at the
	// same step where the dataset does not show it: files of as many records, say.
	// See [ErrVote].
	EndTogether bool
	// From is the position to start at, as [Feed.State] gave it; zero is the
	// beginning.
	From input.State
}

func (o Options) annotation(leaf int) logical.Annotation {
	if leaf < len(o.Annotations) {
		return o.Annotations[leaf]
	}
	return logical.Annotation{}
}

// OptionError says which option of [New] does not fit.
type OptionError struct{ Option, Reason string }

func (e *OptionError) Error() string { return fmt.Sprintf("feed: option %s: %s", e.Option, e.Reason) }

// Kind is ValueError.
func (*OptionError) Kind() errkind.Kind { return errkind.ValueError }

// PartialError says that a batch cannot be fed as it is.
type PartialError struct {
	// Step is the step's index in the input.
	Step int64
	// Component is the path of the component that shows it, Shapes are the shapes
	// of the replicas' parts of it.
	Component string
	Shapes    []string
	// Reason says what is wrong with them.
	Reason string
}

func (e *PartialError) Error() string {
	return fmt.Sprintf("feed: step %d: component %q is %v on the replicas: %s; take them as they are (Partial: Uneven), pad them (Partial: Pad), or batch by a multiple of the replicas with drop remainder",
		e.Step, e.Component, e.Shapes, e.Reason)
}

// Kind is ValueError.
func (*PartialError) Kind() errkind.Kind { return errkind.ValueError }

// PanicError is a panic of the dataset, in a function of its Map say. The process
// and the strategy go on.
type PanicError = input.PanicError
