package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// placer copies batches to the devices. It is not safe for concurrent use. Only the feed's
// goroutine uses it, or only [Feed.Next] if batches stay on the host until Next is called.
type placer struct {
	strategy      *strategy.TPUStrategy
	opts          Options
	localReplicas []int // the replicas that this process feeds
	keepOnHost    bool  // batches stay on the host until Next
	// arguments are the splits of the components, followed by the mask, over the logical devices.
	arguments []logical.Annotation
	rows      int // rows of a padded or full batch; 0 if not known yet

	columns  [][]any              // buffer for the components of the local replicas
	fullMask *strategy.PerReplica // the mask of full batches
}

func newPlacer(s *strategy.TPUStrategy, d *input.DistributedDataset, opts Options) (*placer, error) {
	p := &placer{strategy: s, opts: opts, localReplicas: s.LocalReplicas(), keepOnHost: d.KeepOnHost()}
	p.arguments, _ = d.Layout().([]logical.Annotation)
	if d.LocalReplicas() != len(p.localReplicas) {
		return nil, &errkind.Fault{Op: "feed: new",
			Reason: fmt.Sprintf("the input is for %d replicas of this process, the strategy has %d", d.LocalReplicas(),
				len(p.localReplicas)),
			Hint: fmt.Sprintf("distribute it with Replicas %d, Hosts %d, HostIndex %d", s.NumReplicasInSync(),
				s.NumProcesses(), s.Process()),
			Class: errkind.ValueError}
	}
	p.rows = cmp.Or(opts.Rows, max(d.MaxRows(), 0))
	if p.rows == 0 && s.NumProcesses() > 1 {
		return nil, optionError("Rows", "the input does not say how many rows a replica has, and all processes need the same",
			"give its spec or batch size, or Pad with Rows")
	}
	return p, nil
}

// place copies the batches of one step to the devices. After an error it releases the device
// memory.
func (p *placer) place(ctx context.Context, step input.Step) (b *Batch, err error) {
	b = &Batch{Index: step.Index, Paths: step.Replicas[0].Paths()}
	for _, e := range step.Replicas {
		b.Rows = append(b.Rows, numRows(e))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
			b = nil
		}
	}()
	numArguments := len(b.Paths)
	if p.opts.Partial == Pad {
		numArguments++ // and the mask
		if p.rows == 0 {
			p.rows = slices.Max(b.Rows)
		}
		if p.rows == 0 {
			return b, b.stepError(optionError("Rows", "0 is the first batch's rows, but that has none",
				"say how many to pad to, or leave out batches without rows"))
		}
		var masks []input.Tensor
		if step, masks, err = input.PadStep(step, p.rows); err != nil {
			return b, b.stepError(err)
		}
		if err := p.setMask(ctx, b, masks); err != nil {
			return b, err
		}
	}
	if err := p.transpose(b, step); err != nil {
		return b, err
	}
	if len(p.arguments) > numArguments {
		return b, b.stepError(optionError("Arguments", fmt.Sprintf("%d for the %d components %v", len(p.arguments),
			numArguments, b.Paths), ""))
	}
	for leaf, column := range p.columns {
		if p.opts.Partial != Uneven {
			if err := p.checkShapes(b, leaf, column); err != nil {
				return b, err
			}
		}
		v, err := engine.Internal(p.strategy).NewBatch(ctx, column, annotationOf(leaf, p.arguments))
		if err != nil {
			return b, wrapError(fmt.Sprintf("step %d: component %q", b.Index, b.Paths[leaf]), err)
		}
		b.Values = append(b.Values, v)
	}
	return b, nil
}

func annotationOf(leaf int, arguments []logical.Annotation) logical.Annotation {
	if leaf < len(arguments) {
		return arguments[leaf]
	}
	return logical.Annotation{}
}

// transpose stores in p.columns, for each component of the dataset's elements, the tensors of all
// replicas.
func (p *placer) transpose(b *Batch, step input.Step) error {
	p.columns = slices.Grow(p.columns[:0], len(b.Paths))[:len(b.Paths)]
	for leaf := range p.columns {
		p.columns[leaf] = p.columns[leaf][:0]
	}
	for _, e := range step.Replicas {
		leaves := e.Leaves()
		if len(leaves) != len(p.columns) {
			return &errkind.Fault{Op: fmt.Sprintf("feed: step %d", b.Index),
				Reason: fmt.Sprintf("replicas have %d and %d components", len(p.columns), len(leaves)),
				Hint:   "give all elements one structure", Class: errkind.ValueError}
		}
		for leaf, t := range leaves {
			p.columns[leaf] = append(p.columns[leaf], t)
		}
	}
	return nil
}

// checkShapes returns an error if the replicas' tensors of a component have shapes that one program
// cannot accept.
func (p *placer) checkShapes(b *Batch, leaf int, column []any) error {
	reason := ""
	for _, x := range column {
		switch t := x.(input.Tensor); {
		case !t.Like(column[0].(input.Tensor)):
			reason = "a compiled step has one shape for all replicas"
		case p.opts.Partial == Exact && p.strategy.NumProcesses() > 1 && t.Dim(0) != p.rows:
			reason = fmt.Sprintf("all processes need the same shape, of %d rows", p.rows)
		}
	}
	if reason == "" {
		return nil
	}
	shapes := make([]string, len(column))
	for r, t := range column {
		shapes[r] = t.(input.Tensor).String()
	}
	return &errkind.Fault{Op: fmt.Sprintf("feed: step %d: component %q is %v on the replicas", b.Index, b.Paths[leaf],
		shapes), Reason: reason, Match: ErrPartial,
		Hint: "take them as they are (Partial: Uneven), pad them (Partial: Pad), or batch by a multiple of the replicas " +
			"with drop remainder"}
}

// setMask sets the mask that marks the rows of a batch that are not padding. All full batches share
// one mask.
func (p *placer) setMask(ctx context.Context, b *Batch, masks []input.Tensor) (err error) {
	full := !slices.ContainsFunc(b.Rows, func(rows int) bool { return rows != p.rows })
	if full && p.fullMask != nil {
		b.Mask, b.sharesMask = p.fullMask, true
		return nil
	}
	all := make([]any, len(masks))
	for r, t := range masks {
		all[r] = t
	}
	if b.Mask, err = engine.Internal(p.strategy).NewBatch(ctx, all, annotationOf(len(b.Paths), p.arguments)); err != nil {
		return wrapError(fmt.Sprintf("step %d: mask", b.Index), err)
	}
	if full {
		p.fullMask, b.sharesMask = b.Mask, true
	}
	return nil
}

// numRows returns the number of rows of a batch: dimension 0 of its first component, or 0 if it has
// no components.
func numRows(e input.Element) int {
	leaves := e.Leaves()
	if len(leaves) == 0 {
		return 0
	}
	return leaves[0].Dim(0)
}
