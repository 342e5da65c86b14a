package hlotest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Op is an instruction of an optimized program.
type Op struct {
	// Code is the opcode, such as "all-reduce".
	Code string
	// DType is the element type of the result's first tensor, such as "f32". Bytes is the total
	// size of the result's tensors.
	DType string
	Bytes int64
	// Guarded reports whether the instruction is in a branch of a conditional. Some devices may not
	// run such an instruction.
	Guarded bool
}

type computation struct {
	ops    []Op
	called [][]uint64 // called computations of each op
}

var elements = map[uint64]struct {
	name string
	bits int64
}{
	1: {"pred", 8}, 2: {"s8", 8}, 3: {"s16", 16}, 4: {"s32", 32}, 5: {"s64", 64}, 6: {"u8", 8}, 7: {"u16", 16},
	8: {"u32", 32}, 9: {"u64", 64}, 10: {"f16", 16}, 11: {"f32", 32}, 12: {"f64", 64}, 16: {"bf16", 16},
	15: {"c64", 64}, 18: {"c128", 128},
}

// Ops returns the instructions of an executable's optimized program that are reachable from its
// entry computation, including instructions in fusions, loops and branches.
func Ops(t testing.TB, x *pjrt.Executable) []Op {
	t.Helper()
	p, err := x.OptimizedProgram()
	require.NoError(t, err)
	code := p.Code
	if p.Format == pjrt.FormatHLOWithConfig {
		each(t, p.Code, func(f protoint.Field) {
			if f.Number == 1 {
				code = f.Bytes
			}
		})
	}
	all := map[uint64]*computation{}
	var entry uint64
	each(t, code, func(f protoint.Field) {
		switch f.Number {
		case 3:
			id, c := read(t, f.Bytes)
			all[id] = c
		case 6:
			entry = f.Value
		}
	})
	var out []Op
	var walk func(id uint64, guarded bool)
	walk = func(id uint64, guarded bool) {
		require.Contains(t, all, id)
		for i, op := range all[id].ops {
			op.Guarded = guarded
			out = append(out, op)
			for _, called := range all[id].called[i] {
				walk(called, guarded || op.Code == "conditional")
			}
		}
	}
	walk(entry, false)
	return out
}

func read(t testing.TB, b []byte) (id uint64, c *computation) {
	c = &computation{}
	each(t, b, func(f protoint.Field) {
		switch f.Number {
		case 2:
			var op Op
			var called []uint64
			each(t, f.Bytes, func(f protoint.Field) {
				switch f.Number {
				case 2:
					op.Code = string(f.Bytes)
				case 3:
					op.DType, op.Bytes = shape(t, f.Bytes)
				case 38:
					var err error
					called, err = protoint.AppendNumbers(called, f)
					require.NoError(t, err)
				}
			})
			c.ops, c.called = append(c.ops, op), append(c.called, called)
		case 5:
			id = f.Value
		}
	})
	return id, c
}

func shape(t testing.TB, b []byte) (dtype string, bytes int64) {
	size := int64(1)
	each(t, b, func(f protoint.Field) {
		switch f.Number {
		case 2:
			dtype, size = elements[f.Value].name, size*elements[f.Value].bits
		case 3:
			dims, err := protoint.AppendNumbers[int64](nil, f)
			require.NoError(t, err)
			for _, d := range dims {
				size *= d
			}
		case 4:
			first, n := shape(t, f.Bytes)
			if dtype == "" || dtype == "tuple" {
				dtype = first
			}
			bytes += n
		}
	})
	if bytes == 0 && dtype != "" {
		bytes = size / 8
	}
	return dtype, bytes
}

func each(t testing.TB, b []byte, visit func(protoint.Field)) {
	t.Helper()
	for f, err := range protoint.Fields(b) {
		require.NoError(t, err)
		visit(f)
	}
}
