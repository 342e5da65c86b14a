package input

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/chunk"
)

// SplitRule specifies how batches are split between replicas. TensorFlow implements the same two
// rules as RebatchDataset and LegacyRebatchDataset, and selects one of them automatically.
type SplitRule uint8

const (
	// RuleAuto selects Chunks under the policy Data and for batches of unknown size, and otherwise
	// Sizes. (The policy Auto selects Data if the data is not in files.) After Map, Rebatch and
	// RebatchSizes the size is known only if the spec contains it, as after a Map with a Spec.
	RuleAuto SplitRule = iota
	// Chunks splits every batch of b rows into N chunks of ceil(b/N) rows. The last chunks may be
	// shorter or empty. A short last batch is therefore distributed over the replicas.
	Chunks
	// Sizes gives every replica a fixed number of rows of a global batch of G rows: floor(G/N) or
	// ceil(G/N). It counts rows across the boundaries of batches. The first replicas receive the
	// rows of a short last batch.
	Sizes
)

// splitter implements one SplitRule. To add a rule, declare its constant and add a splitter to the
// table splitters.
type splitter struct {
	name string
	op   string // State.Op of the split stream
	// splitBatches returns a stream that contains each batch of ds as one part per replica.
	// globalBatch is the number of rows of a batch, or below 1 if it is unknown.
	splitBatches func(ds Dataset, globalBatch int, job jobSize, process int) (Dataset, error)
	// equalSteps means that processes that read the same data have the same number of steps.
	equalSteps bool
	// sharesBatch means that the processes together split one global batch in each step, even if
	// they read different data. Otherwise each process splits its own batches.
	sharesBatch bool
	// parseState converts a position of the split stream to a batchBoundary. It returns false if
	// the position is not between two steps.
	parseState func(s State) (batchBoundary, bool)
	// stateAt is the inverse of parseState. It returns false if the rule cannot resume at the boundary.
	stateAt func(b batchBoundary) (State, bool)
}

// batchBoundary is a position between two steps. It consists of the position in the stream of
// global batches, the number of rows of the next batch that were already used, and whether the
// stream has ended (0 or 1).
type batchBoundary struct {
	batchState State
	rowsUsed   int64
	ended      int64
}

// splitters is indexed by SplitRule. The entry of RuleAuto is for a single replica, whose batches
// are not split.
var splitters = [...]splitter{
	RuleAuto: {name: "RuleAuto", sharesBatch: true,
		splitBatches: func(ds Dataset, _ int, _ jobSize, _ int) (Dataset, error) { return ds, nil },
		parseState:   func(s State) (batchBoundary, bool) { return batchBoundary{batchState: s}, true },
		stateAt:      func(b batchBoundary) (State, bool) { return b.batchState, b.rowsUsed == 0 }},
	Chunks: {name: "Chunks", op: chunksOp, equalSteps: true,
		splitBatches: func(ds Dataset, _ int, job jobSize, _ int) (Dataset, error) { return ds.Rebatch(job.replicas), nil },
		parseState: func(s State) (b batchBoundary, ok bool) {
			if s.validate(chunksOp, 1, 1) != nil || s.Counters[0] != 0 {
				return b, false
			}
			return batchBoundary{batchState: s.Inputs[0]}, true
		},
		stateAt: func(b batchBoundary) (State, bool) {
			return State{Op: chunksOp, Counters: []int64{0}, Inputs: []State{b.batchState}}, b.rowsUsed == 0
		}},
	Sizes: {name: "Sizes", op: sizesOp, sharesBatch: true,
		splitBatches: func(ds Dataset, globalBatch int, job jobSize, process int) (Dataset, error) {
			if globalBatch < 1 {
				return ds, valueError("distribute", "batch the dataset with Batch, or use the rule Chunks",
					"the rule Sizes needs the global batch size, which is not known")
			}
			sizes, err := BatchSizes(globalBatch, job.replicas, job.processes, process)
			if err != nil {
				return ds, err
			}
			return ds.RebatchSizes(sizes), nil
		},
		parseState: func(s State) (b batchBoundary, ok bool) {
			// The position is after a complete step, or at the end.
			if s.validate(sizesOp, 3, 1) != nil || s.Counters[1] != 0 && s.Counters[2] == 0 {
				return b, false
			}
			return batchBoundary{s.Inputs[0], s.Counters[0], s.Counters[2]}, true
		},
		stateAt: func(b batchBoundary) (State, bool) {
			return State{Op: sizesOp, Counters: []int64{b.rowsUsed, 0, b.ended}, Inputs: []State{b.batchState}}, true
		}},
}

// The operations of positions of Rebatch and RebatchSizes.
const (
	// The values of State.Op for Rebatch and RebatchSizes.
	chunksOp = "chunks"
	sizesOp  = "sizes"
)

// splitterOf returns the splitter that saved the position. If another operation saved it,
// splitterOf returns the splitter of RuleAuto.
func splitterOf(s State) splitter {
	for _, p := range splitters[RuleAuto+1:] {
		if p.op == s.Op {
			return p
		}
	}
	return splitters[RuleAuto]
}

func autoSplitRule(policy AutoShardPolicy, globalBatch int, isKnown bool) SplitRule {
	if policy == Data || globalBatch < 1 || !isKnown {
		return Chunks
	}
	return Sizes
}

// String returns the constant's name.
func (r SplitRule) String() string {
	if int(r) < len(splitters) {
		return splitters[r].name
	}
	return fmt.Sprintf("SplitRule(%d)", uint8(r))
}

// BatchSizes returns the numbers of rows into which one process splits its stream under the rule
// [Sizes], like TensorFlow's batch_sizes_for_worker. The list has one size for each replica of all
// processes, and the sizes sum to the global batch size. In each step, the process takes the next
// sizes for its own replicas, and starts again at the end of the list. In a step, the sizes of all
// processes sum to the global batch size, and two replicas differ by at most one row.
func BatchSizes(global, replicas, processes, process int) ([]int, error) {
	if global < 0 || replicas < 1 || processes < 1 || process < 0 || process >= processes {
		return nil, valueError("batch sizes", "count processes from 0, and pass at least one replica and no negative batch",
			"process %d of %d with %d replicas and a global batch of %d", process, processes, replicas, global)
	}
	if replicas%processes != 0 {
		return nil, unevenReplicasError(replicas, processes)
	}
	sizes := make([]int, replicas)
	for i := range sizes {
		first := (i + process*(replicas/processes)) % replicas
		sizes[i] = global / replicas
		if first < global%replicas {
			sizes[i]++
		}
	}
	return sizes, nil
}

// mapLeadingDims returns a copy of spec with newDim applied to the size of axis 0 of each
// component.
func mapLeadingDims(spec Spec, newDim func(dim int) int) Spec {
	return mapDims(spec, func(dims []int) []int {
		if len(dims) > 0 {
			dims[0] = newDim(dims[0])
		}
		return dims
	})
}

// Rebatch splits each batch into n chunks by the rule [Chunks], each component by its own number of
// rows. It copies no rows. A restore reads the current batch again.
func (d Dataset) Rebatch(n int) Dataset {
	if n < 1 {
		return invalidDataset("rebatch", "give a number from 1", "into %d chunks", n)
	}
	return d.derive(func(info Info) Info {
		info.Spec, info.batchSizeUncertain = mapLeadingDims(info.Spec, func(dim int) int {
			if dim >= 0 && dim%n == 0 {
				return dim / n
			}
			return Unknown
		}), true
		info.Cardinality = info.Cardinality.multiply(int64(n))
		switch {
		case info.BatchSize > 0 && info.BatchSize%n == 0:
			info.BatchSize /= n
		case info.BatchSize != 0:
			info.BatchSize = Unknown
		}
		return info
	}, openWithCounters(chunksOp, 1, func(ctx context.Context, src Iterator, counters []int64) (Iterator, error) {
		c := &chunkIterator{pieceReader{Iterator: src}, func(Element) (int, error) { return n, nil }}
		return c, c.restorePiece(ctx, counters[0], c.numChunks)
	}))
}

type chunkIterator struct {
	pieceReader
	numChunks func(Element) (int, error)
}

func (c *chunkIterator) Next(ctx context.Context) (Element, error) {
	if c.nextPiece >= c.numPieces {
		if err := c.readBatch(ctx, c.numChunks); err != nil {
			return Element{}, err
		}
	}
	c.nextPiece++
	return chunkAt(c.current, c.numPieces, c.nextPiece-1)
}

func chunkAt(e Element, n, i int) (Element, error) {
	return MapNest(e, func(path string, t Tensor) (Tensor, error) {
		if t.Rank() == 0 {
			return Tensor{}, notBatchedError(path, t.Spec())
		}
		return t.Rows(chunk.Range(t.dims[0], n, i))
	})
}

func (c *chunkIterator) State() (State, error) { return c.pieceState(chunksOp) }

// RebatchSizes regroups the rows of all batches into batches of the given sizes, like tf.data's
// Dataset.rebatch. It uses the list of sizes cyclically. A size of 0 yields an empty batch. The
// last batch may have fewer rows. All components of a batch must have the same number of rows. Rows
// are copied only if an output batch has rows of several input batches. A restore reads the current
// batch again.
func (d Dataset) RebatchSizes(sizes []int) Dataset {
	sizes = slices.Clone(sizes)
	total := 0
	for _, s := range sizes {
		if s < 0 {
			return invalidDataset("rebatch", "give sizes from 0", "to sizes %v", sizes)
		}
		total += s
	}
	if total == 0 {
		return invalidDataset("rebatch", "give at least one size above 0", "to sizes %v", sizes)
	}
	spec := d.Info().Spec
	return d.derive(func(info Info) Info {
		known := slices.Min(sizes) == slices.Max(sizes)
		info.Spec = mapLeadingDims(info.Spec, func(dim int) int {
			if known && dim >= 0 && dim%sizes[0] == 0 {
				return sizes[0]
			}
			return Unknown
		})
		info.BatchSize, info.batchSizeUncertain = Unknown, true
		if known {
			info.BatchSize = sizes[0]
		}
		if info.Cardinality > 0 || info.Cardinality == 0 && slices.Min(sizes) == 0 {
			info.Cardinality = UnknownCardinality
		}
		return info
	}, openWithCounters(sizesOp, 3, func(ctx context.Context, src Iterator, counters []int64) (Iterator, error) {
		if counters[1] >= int64(len(sizes)) {
			return nil, stateError("size %d of %d", counters[1], len(sizes))
		}
		c := &resizeIterator{pieceReader: pieceReader{Iterator: src}, sizes: sizes, spec: spec, nextSize: int(counters[1]),
			ended: counters[2] != 0}
		return c, c.restorePiece(ctx, counters[0], numRows)
	}))
}

type resizeIterator struct {
	pieceReader
	sizes    []int
	spec     Spec
	nextSize int // index of the next size
	ended    bool
}

func (c *resizeIterator) Next(ctx context.Context) (Element, error) {
	if c.ended {
		return Element{}, io.EOF
	}
	want := c.sizes[c.nextSize]
	if want == 0 {
		e, err := c.nextEmptyBatch(ctx)
		if err == nil {
			c.nextSize = (c.nextSize + 1) % len(c.sizes)
		}
		return e, err
	}
	var parts []Element
	for count := 0; count < want; {
		if c.nextPiece >= c.numPieces {
			err := c.readBatch(ctx, numRows)
			if err == io.EOF {
				c.ended = true
				break
			}
			if err != nil {
				return Element{}, err
			}
			continue
		}
		end := min(c.nextPiece+want-count, c.numPieces)
		part, err := sliceRows(c.current, c.nextPiece, end)
		if err != nil {
			return Element{}, err
		}
		count, c.nextPiece = count+end-c.nextPiece, end
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return Element{}, io.EOF
	}
	c.nextSize = (c.nextSize + 1) % len(c.sizes)
	out, err := joinElements(parts, false)
	if err != nil {
		return Element{}, wrapError("rebatch", "", err)
	}
	return out, nil
}

// nextEmptyBatch returns a batch of 0 rows. If the spec is unknown, it uses the shape of the
// current or the next input batch.
func (c *resizeIterator) nextEmptyBatch(ctx context.Context) (Element, error) {
	if !c.spec.IsZero() {
		return emptyBatch(c.spec)
	}
	if c.current.IsZero() {
		if err := c.readBatch(ctx, numRows); err != nil {
			return Element{}, err
		}
	}
	return sliceRows(c.current, 0, 0)
}

func (c *resizeIterator) State() (State, error) {
	return c.pieceState(sizesOp, int64(c.nextSize), boolToInt64(c.ended))
}
