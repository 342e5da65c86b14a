package strategy

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
)

// batchRows is the number of rows of an argument that is split over the replicas.
type batchRows struct {
	total    int
	replicas []int // by replica; nil if the replicas do not divide the rows
}

// checkRows returns an error if two arguments that are split over the replicas have different
// numbers of rows. Tracing the step does not always detect this, because a replica may broadcast
// its rows. The error names the argument whose rows do not divide evenly over the replicas, if
// there is one, and otherwise the later argument.
func (f *Function) checkRows(args []any) error {
	if f.opts.UnequalRows || f.opts.own || f.loaded != nil {
		return nil
	}
	first, want := -1, batchRows{}
	for i, arg := range args {
		rows, ok := f.argumentRows(i, arg)
		switch {
		case !ok:
		case first < 0:
			first, want = i, rows
		case rows.total != want.total && want.total%f.strategy.replicas != 0 && rows.total%f.strategy.replicas == 0:
			return f.newRowsError(first, i, "rows", want.total, rows.total)
		case rows.total != want.total:
			return f.newRowsError(i, first, "rows", rows.total, want.total)
		case rows.replicas != nil && want.replicas != nil && !slices.Equal(rows.replicas, want.replicas):
			return f.newRowsError(i, first, "rows on the replicas", rows.replicas, want.replicas)
		}
	}
	return nil
}

// argumentRows counts the rows of argument i. It returns false if the argument is not split over
// the replicas.
func (f *Function) argumentRows(i int, arg any) (rows batchRows, ok bool) {
	split := f.opts.SplitBatch || f.opts.LocalBatch
	share := batchSplitter{f.strategy, f.opts.LocalBatch, f.argumentAnnotation(i)}
	if v, ok := arg.(Value); ok {
		if isNil(v) {
			return rows, false
		}
		base := v.base()
		if !base.perReplica || len(base.shape) == 0 || !split && !base.batch {
			return rows, false
		}
		for r := range share.numShares() {
			n := base.shape[0]
			if base.replicaShapes != nil {
				n = base.replicaShapes[r][0]
			}
			rows.replicas = append(rows.replicas, n)
			rows.total += n
		}
		return rows, true
	}
	if !split {
		return rows, false
	}
	if rows.total, ok = leadingDim(arg); !ok {
		return rows, false
	}
	batch := shapes.Make(dtypes.Bool, rows.total)
	if n := share.numShares(); rows.total%n == 0 {
		rows.replicas = slices.Repeat([]int{rows.total / n}, n)
	} else if f.acceptsUneven() && f.isUneven(batch) {
		for _, dims := range share.unevenShapes(batch.Dimensions) {
			rows.replicas = append(rows.replicas, dims[0])
		}
	}
	return rows, true
}

// leadingDim returns the first dimension of a tensor, a slice or a shape, without converting x to a
// tensor. It returns false for other values and for scalars.
func leadingDim(x any) (int, bool) {
	shape, ok := x.(shapes.Shape)
	if !ok {
		tensor, isTensor := x.(*tensors.Tensor)
		if !isTensor {
			v := reflect.ValueOf(x)
			if v.Kind() != reflect.Slice {
				return 0, false
			}
			return v.Len(), true
		}
		if tensor == nil {
			return 0, false
		}
		shape = tensor.Shape()
	}
	if !shape.Ok() || shape.Rank() == 0 {
		return 0, false
	}
	return shape.Dimensions[0], true
}

// newRowsError returns an error that arguments i and j have different numbers of rows.
func (f *Function) newRowsError(i, j int, unit string, rows, want any) error {
	other := fmt.Sprintf("argument %d", j)
	if j < len(f.paths) {
		other = f.paths[j]
	}
	return &ArgumentError{Function: f.opts.Name, Argument: i, rows: true,
		Reason: fmt.Sprintf("has %v %s but %s has %v", rows, unit, other, want),
		Hint: "arguments split over replicas must have the same number of rows: pass an argument that is not a batch as a " +
			"mirrored value " +
			"(TPUStrategy.Mirror), or set the option UnequalRows if the numbers differ on purpose",
	}
}
