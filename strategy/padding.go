package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/chunk"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// A step with padded values is traced for its padded shape and for two other sizes of each padded
// dimension. The differences show which dimensions depend on the padded one; see package ragged.
// Its program receives the actual sizes, and its results are truncated to them.

// paddedSize is the size to which a dimension is padded. Several dimensions of the arguments may
// share a paddedSize, such as the rows of an input and the rows of its labels.
type paddedSize struct {
	// argument and dim identify the first such dimension; length is the padded size. argument is -1
	// for the rows of microbatches.
	argument, dim, length int
}

// paddedDims has the padded dimensions of a step's arguments.
type paddedDims struct {
	sizes       []paddedSize
	sizeIndices [][]int // index of the size, by argument and dimension, or -1
}

// microbatchSize returns the index of the padded size that applies to the rows of microbatches, or
// -1.
func (p *paddedDims) microbatchSize() int {
	return slices.IndexFunc(p.sizes, func(s paddedSize) bool { return s.argument < 0 })
}

// newPaddedDims finds the dimensions of the values that are padded. Dimensions with the same number
// that have the same actual size on each replica share a paddedSize. If microbatch is positive, it
// is the padded number of rows of a microbatch, and dimension 0 of the values is ignored.
func newPaddedDims(values []Value, microbatch int) (p paddedDims) {
	if microbatch > 0 {
		p.sizes = []paddedSize{{-1, 0, microbatch}}
	}
	for i, v := range values {
		base := v.base()
		of := make([]int, len(base.shape))
		for d, length := range base.shape {
			of[d] = -1
			if microbatch > 0 && d == 0 {
				continue
			}
			if !slices.ContainsFunc(base.replicaShapes, func(real []int) bool { return real[d] != length }) {
				continue
			}
			of[d] = slices.IndexFunc(p.sizes, func(s paddedSize) bool {
				if s.dim != d || s.length != length {
					return false
				}
				other := values[s.argument].base().replicaShapes
				for r, real := range base.replicaShapes {
					if real[d] != other[r][d] {
						return false
					}
				}
				return true
			})
			if of[d] < 0 {
				of[d] = len(p.sizes)
				p.sizes = append(p.sizes, paddedSize{i, d, length})
			}
		}
		p.sizeIndices = append(p.sizeIndices, of)
	}
	return p
}

// resizeFactors are the factors of a padded size in the additional traces.
var resizeFactors = []int{2, 5}

// excludePadding rewrites the traced step so that its results do not depend on the padding. The
// caller must have locked the store with ctx.
func (t *trace) excludePadding(ctx context.Context) error {
	sizes := make([]int, len(t.padding.sizes))
	sources := make([]ragged.SizeSource, len(sizes))
	ordinal := map[int]int{} // of the arguments that have sizes
	for i, v := range t.values {
		if v.base().replicaShapes != nil {
			ordinal[i] = len(ordinal)
		}
	}
	for i, size := range t.padding.sizes {
		sizes[i] = size.length
		if size.argument < 0 {
			continue // see spmd.MarkRealRows
		}
		sources[i] = ragged.SizeSource{Parameter: argumentName(len(t.values) - len(ordinal) +
			ordinal[size.argument]), Index: size.dim}
	}
	var others []spmd.Variant
	for i := range sizes {
		for _, times := range resizeFactors {
			resized := slices.Clone(sizes)
			resized[i] *= times
			other, err := t.retrace(ctx, resized)
			if err != nil {
				return t.f.newTraceError(err)
			}
			defer other.graph.Finalize()
			others = append(others, spmd.Variant{Trace: other.module, Graph: other.graph, Sizes: resized})
		}
	}
	var err error
	if t.paddedResults, err = t.module.MaskPadding(t.graph, sizes, sources, others); err != nil {
		return t.f.newTraceError(err)
	}
	t.paddedResults = t.paddedResults[:t.numResults]
	return nil
}

// retrace traces the step again with different padded sizes. It does not change variables.
func (t *trace) retrace(ctx context.Context, sizes []int) (other *trace, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &ragged.Error{Dim: -1, Reason: fmt.Sprintf("the step cannot be traced for padded dimensions of %v", sizes),
				Err: fault.FromPanic(r),
				Hint: "take dimensions from the arguments' shapes, or mask the padding in the step (FunctionOptions.Padding: " +
					"KeepPadding)"}
		}
	}()
	values := make([]Value, len(t.values))
	for i, v := range t.values {
		like := v.base().withoutContents()
		like.strategy, like.shape = t.f.strategy, slices.Clone(like.shape)
		for d, size := range t.padding.sizeIndices[i] {
			if size >= 0 {
				like.shape[d] = sizes[size]
			}
		}
		values[i] = &abstractValue{distributed: like, Value: v}
	}
	other = t.f.newTrace(ctx, values, t.precision)
	other.padding = t.padding
	if i := t.padding.microbatchSize(); i >= 0 {
		other.rc.state.MicrobatchRows = sizes[i]
	}
	if err := other.run(); err != nil {
		return nil, err
	}
	return other, nil
}

// abstractValue represents a value by another shape, without contents.
type abstractValue struct {
	Value
	distributed *deviceValue
}

func (v *abstractValue) base() *deviceValue { return v.distributed }

// truncateResult sets the actual shape of a step's result on each replica. It computes these shapes
// from the actual shapes of the arguments.
func (p *program) truncateResult(result int, v *deviceValue, values []Value) {
	if p.paddedResults == nil || !slices.ContainsFunc(p.paddedResults[result], ragged.Dim.IsPadded) {
		return
	}
	all := make([][]int, p.function.strategy.replicas)
	for r := range all {
		all[r] = slices.Clone(v.shape)
		for d, dim := range p.paddedResults[result] {
			if dim.IsPadded() {
				size := p.padding.sizes[dim.Size]
				all[r][d] = dim.Factor * values[size.argument].base().replicaShapes[r][size.dim]
			}
		}
	}
	v.replicaShapes = all
}

// unevenShapes returns the shape of each replica's share of a batch that does not divide evenly.
// The rows are divided as in input.Chunks.
func (b batchSplitter) unevenShapes(batch []int) [][]int {
	all := make([][]int, b.replicas)
	for r := range all {
		start, end := chunk.Range(batch[0], b.replicas, r)
		all[r] = slices.Clone(batch)
		all[r][0] = end - start
	}
	return all
}

// splitUneven splits a batch whose rows do not divide evenly over the replicas.
func (b batchSplitter) splitUneven(ctx context.Context, batch *tensors.Tensor) (*PerReplica, error) {
	all := make([]*tensors.Tensor, b.replicas)
	var failed error
	err := batch.ConstBytes(func(data []byte) {
		for r, dims := range b.unevenShapes(batch.Shape().Dimensions) {
			all[r] = tensors.FromShape(shapes.Make(batch.DType(), dims...))
			if dims[0] > 0 {
				failed = errors.Join(failed, all[r].MutableBytes(func(into []byte) { data = data[copy(into, data):] }))
			}
		}
	})
	if err = errors.Join(failed, err); err != nil {
		return nil, fault.Wrap("split batch", err, "")
	}
	return b.putTensors(ctx, all)
}

// newUnevenAbstractValue is like splitUneven, but returns a value without contents.
func (b batchSplitter) newUnevenAbstractValue(batch shapes.Shape) (Value, error) {
	real := b.unevenShapes(batch.Dimensions)
	dims, _ := b.paddedShape(real)
	if _, err := b.layout(batch.DType, dims, b.annotation, true); err != nil {
		return nil, err
	}
	v, err := b.newValue(true, batch.DType, dims, b.annotation, nil)
	if err != nil {
		return nil, err
	}
	v.base().replicaShapes = real
	return v, nil
}

// isUneven reports whether the rows of a host batch do not divide evenly over the replicas. It
// returns false with several processes, which do not support such batches.
func (f *Function) isUneven(shape shapes.Shape) bool {
	return !f.strategy.runtime.IsMultiProcess() && shape.Rank() > 0 && shape.Dimensions[0]%f.strategy.replicas != 0
}

// rowCounts returns this replica's number of rows without padding, an int32 scalar, and the sum of
// these numbers over all replicas. Both results are nil if no argument has padded rows. rowCounts
// panics if arguments have different numbers of rows.
func (rc *ReplicaContext) rowCounts() (local, global *graph.Node) {
	if rc.padding == nil || rc.state.Rows != nil {
		return rc.state.Rows, rc.state.AllRows
	}
	first := -1
	for i, of := range rc.padding.sizeIndices {
		switch {
		case len(of) == 0 || of[0] < 0:
		case first < 0:
			first = i
		case of[0] != rc.padding.sizeIndices[first][0]:
			panic(fault.New(errkind.ValueError, "rows", "give tensors of the same rows",
				"arguments %d and %d have other numbers of rows", first, i))
		}
	}
	if first < 0 {
		return nil, nil
	}
	rc.state.Rows = rc.ValidSize(first, 0)
	rc.state.AllRows = spmd.AllReduce(rc.state.Rows, spmd.Sum)
	return rc.state.Rows, rc.state.AllRows
}

// weightByRows scales a mean over the replica's rows. The average of the scaled means over the
// replicas is the mean over all rows. The result is 0 on a replica without rows.
func (rc *ReplicaContext) weightByRows(mean *graph.Node) *graph.Node {
	rows, all := rc.rowCounts()
	if rows == nil {
		return mean
	}
	in := dtypes.Float32
	if mean.DType() == dtypes.Float64 {
		in = dtypes.Float64
	}
	share := graph.Div(graph.ConvertDType(rows, in), graph.ConvertDType(all, in))
	share = graph.StopGradient(graph.MulScalar(share, float64(rc.strategy.replicas)))
	whole := graph.ConvertDType(graph.Mul(graph.ConvertDType(mean, in), share), mean.DType())
	return selectIfRows(rows, whole, graph.ZerosLike(whole))
}

// selectIfRows returns x on replicas that received rows, and y on replicas that did not.
func selectIfRows(rows, x, y *graph.Node) *graph.Node {
	return graph.Where(graph.GreaterThan(rows, graph.ZerosLike(rows)), x, y)
}

// meanState returns the average of a variable's values on the replicas, weighted by the number of
// rows of each replica.
func (rc *ReplicaContext) meanState(x *graph.Node) *graph.Node {
	rows, _ := rc.rowCounts()
	if rows == nil {
		return allReduce(Mean, x, rc.strategy.replicas)
	}
	return allReduce(Mean, rc.weightByRows(x), rc.strategy.replicas)
}

// acceptsRagged reports whether an argument may have a different shape on each replica.
func (f *Function) acceptsRagged() bool { return f.opts.Padding != NoPadding }

// findPadding returns the padded dimensions of the values that the step's program must ignore.
func (f *Function) findPadding(values []Value) (p paddedDims) {
	if f.opts.Padding == MaskPadding {
		p = newPaddedDims(values, f.microbatchRows(values))
	}
	return p
}

// microbatchRows returns the padded number of rows of the step's microbatches, or 0 if no
// microbatch is padded. It ignores the values after the arguments, which contain the actual sizes
// of padded arguments.
func (f *Function) microbatchRows(values []Value) int {
	if f.paddedMicrobatchRows == nil {
		return 0
	}
	n := len(values)
	for _, v := range values {
		if f.acceptsRagged() && v.base().replicaShapes != nil {
			n--
		}
	}
	return f.paddedMicrobatchRows(values[:n])
}

// acceptsUneven reports whether the function accepts host batches that do not divide evenly over
// the replicas.
func (f *Function) acceptsUneven() bool {
	return f.acceptsRagged() && (f.opts.SplitBatch || f.opts.LocalBatch)
}

// unevenBatch converts arg to a host tensor if its rows do not divide evenly over the replicas. ok
// is false if they do, or if the function does not accept such batches.
func (f *Function) unevenBatch(arg any) (batch *tensors.Tensor, ok bool) {
	if !f.acceptsUneven() {
		return nil, false
	}
	batch, err := hostTensor(arg)
	return batch, err == nil && f.isUneven(batch.Shape())
}
