package gomlx

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/internal/protoint"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// resultShardings reads the layouts that the partitioner chose for the results of a compiled
// program.
type resultShardings struct {
	executable *pjrt.LoadedExecutable
	numResults int
	ops        []sharding.OpSharding
}

// layout returns the layout that the partitioner chose for the result with the given index. It also
// stores this layout in the fields Spec and ShardDims of x.
func (c *resultShardings) layout(over sharding.Mesh, x *spmd.ShardedTensor, result int) (*engine.Layout, error) {
	if c.executable == nil {
		return nil, layoutError("the runtime gives no compiled program", nil)
	}
	t, err := hostdata.PJRTType(x.DType)
	if err != nil {
		return nil, err
	}
	if slices.Equal(c.executable.Outputs()[result].Dims, x.GlobalDims) {
		return engine.NewLayout(t, x.GlobalDims, over, x.Spec) // replicated
	}
	if c.ops == nil {
		if c.ops, err = outputShardings(c.executable.Executable(), c.numResults); err != nil {
			return nil, err
		}
	}
	op := c.ops[result]
	l, err := engine.NewLayoutFromRanges(t, x.GlobalDims, over.Size(), func(device int) ([]sharding.Range, error) {
		ranges, holds, err := op.IndexRanges(x.GlobalDims, device)
		if err == nil && !holds {
			err = layoutError(fmt.Sprintf("device %d holds nothing of result %d", device, result), nil)
		}
		return ranges, err
	})
	if err != nil {
		return nil, layoutError("", err)
	}
	x.ShardDims = l.Shard
	if x.Spec, err = sharding.SpecOf(over, op, len(x.GlobalDims)); err != nil {
		x.Spec = sharding.Unconstrained(len(x.GlobalDims)) // sharded over a part of an axis
	}
	return l, nil
}

// errLayout matches errors for a result whose layout is unknown.
var errLayout = errkind.New(errkind.Unknown, "gomlx: layout of a result")

func layoutError(reason string, cause error) error {
	return &errkind.Fault{Match: errLayout, Reason: reason, Err: cause,
		Class: errkind.KindOr(cause, errkind.NotImplementedError)}
}

func outputShardings(x *pjrt.Executable, results int) ([]sharding.OpSharding, error) {
	p, err := x.OptimizedProgram()
	if err != nil {
		return nil, layoutError("", err)
	}
	// HloModuleProtoWithConfig contains the module in field 1, and HloModuleProto the sharding of
	// its result in field 12.
	code := p.Code
	if p.Format == pjrt.FormatHLOWithConfig {
		if code, err = lastField(code, 1); err != nil {
			return nil, layoutError("", err)
		}
	}
	bytes, err := lastField(code, 12)
	if err != nil {
		return nil, layoutError("", err)
	}
	if bytes == nil {
		return nil, layoutError("the program does not tell", nil)
	}
	op, err := sharding.ParseOpShardingProto(bytes)
	if err != nil {
		return nil, layoutError("", err)
	}
	ops := []sharding.OpSharding{op}
	if op.Kind() == sharding.KindTuple {
		ops = op.Elements()
	}
	if len(ops) != results {
		return nil, layoutError(fmt.Sprintf("there are %d for %d results", len(ops), results), nil)
	}
	return ops, nil
}

// lastField returns the content of a field in the protocol buffer message m. If the field is
// repeated, it returns the last content, and if the field is missing, nil.
func lastField(m []byte, number int) (found []byte, err error) {
	for f, err := range protoint.Fields(m) {
		if err != nil {
			return nil, err
		}
		if int(f.Number) == number {
			found = f.Bytes
		}
	}
	return found, nil
}
