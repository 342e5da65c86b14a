package input

import "fmt"

// Pad extends every component of a batch to the given number of rows with zeros (empty strings for
// String, false for Bool). It also returns a bool mask of shape [rows] that is true for the
// original rows. A batch that already has this number of rows is returned unchanged. It is an error
// if the components have different numbers of rows or more than rows rows.
//
// A compiled step has one shape. A short last batch therefore needs either Pad, with the mask
// applied to the loss and the metrics, or a second compilation for its shape.
func Pad(e Element, rows int) (Element, Tensor, error) {
	count, err := numRows(e)
	if err != nil {
		return Element{}, Tensor{}, err
	}
	if count > rows {
		return Element{}, Tensor{}, valueError("pad", "give at least as many rows",
			"a batch of %d rows does not fit into %d", count, rows)
	}
	mask := make([]bool, rows)
	for i := range count {
		mask[i] = true
	}
	if count == rows {
		return e, Vector(mask...), nil
	}
	out, err := MapNest(e, func(_ string, t Tensor) (Tensor, error) {
		dims := t.Dims()
		dims[0] = rows - count
		fill, err := Zeros(t.Kind(), dims...)
		if err != nil {
			return Tensor{}, err
		}
		return joinTensors([]Tensor{t, fill}, false)
	})
	return out, Vector(mask...), err
}

// PadStep pads the elements of all replicas to the same number of rows with [Pad] and returns one
// mask per replica. If rows is 0, it pads to the largest number of rows in this step on this
// process. With several processes, pass a fixed number such as [DistributedDataset.MaxRows],
// because all processes must use the same shape.
func PadStep(step Step, rows int) (Step, []Tensor, error) {
	if rows == 0 {
		for r, e := range step.Replicas {
			n, err := numRows(e)
			if err != nil {
				return Step{}, nil, wrapError("pad step", fmt.Sprintf("of replica %d", r), err)
			}
			rows = max(rows, n)
		}
	}
	out := Step{Index: step.Index, HasData: step.HasData, Replicas: make([]Element, len(step.Replicas))}
	masks := make([]Tensor, len(step.Replicas))
	for r, e := range step.Replicas {
		var err error
		if out.Replicas[r], masks[r], err = Pad(e, rows); err != nil {
			return Step{}, nil, wrapError("pad step", fmt.Sprintf("of replica %d", r), err)
		}
	}
	return out, masks, nil
}
