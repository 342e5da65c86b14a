package lowering_test

import (
	"errors"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/lowering"
)

// script reads choices from fuzzed bytes. After the last byte every choice is 0.
type script struct{ bytes []byte }

func (s *script) next(n int) int {
	if len(s.bytes) == 0 {
		return 0
	}
	b := s.bytes[0]
	s.bytes = s.bytes[1:]
	return int(b) % n
}

// ints returns small integers, which may be negative.
func (s *script) ints() []int {
	out := make([]int, s.next(4))
	for i := range out {
		out[i] = s.next(7) - 2
	}
	return out
}

func (s *script) pairs() [][2]int {
	out := make([][2]int, s.next(3))
	for i := range out {
		out[i] = [2]int{s.next(5) - 2, s.next(5) - 2}
	}
	return out
}

func (s *script) dtype() dtypes.DType { return dtypes.DType(s.next(33)) }

func (s *script) shape() shapes.Shape { return shapes.Shape{DType: s.dtype(), Dimensions: s.ints()} }

// scripted builds the program of a script, ignores errors of its ops, and returns its text.
func scripted(t *testing.T, bytes []byte) string {
	s := &script{bytes}
	b := lowering.New(lowering.Options{Target: lowering.Target(s.next(2))}).Builder("fuzz")
	f := b.Main()
	values := []compute.Value{nil}
	keep := func(v compute.Value, err error) {
		var op *lowering.OpError
		if err != nil && !errors.As(err, &op) {
			t.Fatalf("an error that names no op: %v", err)
		}
		if (err == nil) != (v != nil) {
			t.Fatalf("value %v with error %v", v, err)
		}
		if err == nil {
			values = append(values, v)
		}
	}
	all := func(vs []compute.Value, err error) {
		for _, v := range vs {
			keep(v, nil)
		}
		if err != nil {
			keep(nil, err)
		}
	}
	pick := func() compute.Value { return values[s.next(len(values))] }
	keep(f.Parameter("x", shapes.Make(dtypes.Float32, 2, 3), nil))
	keep(f.Parameter("i", shapes.Make(dtypes.Int32, 2), nil))
	for range 64 {
		if len(s.bytes) == 0 {
			break
		}
		switch s.next(36) {
		case 0:
			keep(f.Parameter(string(s.bytes[:min(2, len(s.bytes))]), s.shape(), nil))
		case 1:
			keep(f.Constant(make([]int16, s.next(20)), s.ints()...))
		case 2:
			keep(f.Add(pick(), pick()))
		case 3:
			keep(f.Where(pick(), pick(), pick()))
		case 4:
			keep(f.Reshape(pick(), s.ints()...))
		case 5:
			keep(f.BroadcastInDim(pick(), s.shape(), s.ints()))
		case 6:
			keep(f.Iota(s.shape(), s.next(5)-2))
		case 7:
			keep(f.Transpose(pick(), s.ints()...))
		case 8:
			keep(f.Slice(pick(), s.ints(), s.ints(), s.ints()))
		case 9:
			keep(f.Pad(pick(), pick(), compute.PadAxis{Start: s.next(5) - 2, End: s.next(5) - 2, Interior: s.next(5) - 2}))
		case 10:
			keep(f.Concatenate(s.next(5)-2, pick(), pick()))
		case 11:
			keep(f.ReduceMax(pick(), s.ints()...))
		case 12:
			keep(f.ArgMinMax(pick(), s.next(5)-2, s.dtype(), s.next(2) == 0))
		case 13:
			keep(f.CumSum(pick(), s.next(5)-2, compute.CumSumOptions{Exclusive: s.next(2) == 0, Reverse: s.next(2) == 0}))
		case 14:
			keep(f.ReduceWindow(pick(), compute.ReduceOpType(s.next(6)), s.ints(), s.ints(), s.ints(), s.ints(), s.pairs()))
		case 15:
			keep(f.SelectAndScatterMax(pick(), pick(), s.ints(), s.ints(), s.pairs()))
		case 16:
			keep(f.Gather(pick(), pick(), s.next(5)-2, s.ints(), s.ints(), s.ints(), s.ints(), false))
		case 17:
			keep(f.ScatterSum(pick(), pick(), pick(), s.next(5)-2, s.ints(), s.ints(), s.ints(), false, false))
		case 18:
			keep(f.DotGeneral(pick(), s.ints(), s.ints(), pick(), s.ints(), s.ints(),
				compute.DotGeneralConfig{AccumulatorDType: s.dtype(), OutputDType: s.dtype()}))
		case 19:
			keep(f.ConvGeneral(pick(), pick(), compute.ConvolveAxesConfig{
				InputBatch: s.next(4), InputChannels: s.next(4), InputSpatial: s.ints(),
				KernelInputChannels: s.next(4), KernelOutputChannels: s.next(4), KernelSpatial: s.ints(),
				OutputBatch: s.next(4), OutputChannels: s.next(4), OutputSpatial: s.ints(),
			}, s.ints(), s.pairs(), s.ints(), s.ints(), s.next(4)-1, s.next(4)-1))
		case 20:
			keep(f.FFT(pick(), compute.FFTType(s.next(6)), s.ints()))
		case 21:
			keep(f.Bitcast(pick(), s.dtype()))
		case 22:
			keep(f.ConvertDType(pick(), s.dtype()))
		case 23:
			keep(f.DynamicSlice(pick(), []compute.Value{pick(), pick()}, s.ints()))
		case 24:
			keep(f.DynamicUpdateSlice(pick(), pick(), []compute.Value{pick()}))
		case 25:
			_, v, err := f.RNGBitGenerator(pick(), s.shape())
			keep(v, err)
		case 26:
			n, _, _, err := f.BatchNormForTraining(pick(), pick(), pick(), 1e-3, s.next(5)-2)
			keep(n, err)
		case 27:
			all(f.OptimizationBarrier(pick(), pick()))
		case 28:
			all(f.AllReduce([]compute.Value{pick()}, compute.ReduceOpType(s.next(6)), [][]int{s.ints(), s.ints()}))
		case 29:
			keep(f.Clamp(pick(), pick(), pick()))
		case 30:
			keep(f.Abs(pick()))
		case 31:
			keep(f.Complex(pick(), pick()))
		case 32:
			c, err := f.Closure()
			if err != nil {
				t.Fatal(err)
			}
			v, err := c.Neg(pick())
			if err != nil {
				v = values[1]
			}
			if err := c.Return([]compute.Value{v}, nil); err != nil {
				t.Fatal(err)
			}
			all(f.If(pick(), c, c))
			all(f.While(c, c, pick()))
			all(f.Sort(c, s.next(5)-2, true, pick()))
		case 33:
			keep(f.Reverse(pick(), s.ints()...))
		case 34:
			keep(f.Equal(pick(), pick()))
		case 35:
			keep(f.BatchNormForInference(pick(), pick(), pick(), pick(), pick(), 1e-3, s.next(5)-2))
		}
	}
	if err := f.Return(values[len(values)-1:], nil); err != nil {
		t.Fatal(err)
	}
	exe, err := b.Compile()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exe.(*lowering.Executable).Program().Text()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// FuzzOps builds programs of random ops and operands. No op may panic, every error must name its
// op, and the same calls must return the same text.
func FuzzOps(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 2, 1, 1, 11, 3, 0})
	f.Add([]byte("lowering the same graph twice gives the same text"))
	for op := range byte(36) {
		f.Add([]byte{1, op, 1, 1, 2, 3, 1, 4, 2, 2, 1, 3, 1, 2, op, 2, 1, 3, 2, 2, 3, 3, 4, 4, 5, 1, 1})
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		if first, second := scripted(t, bytes), scripted(t, bytes); first != second {
			t.Fatalf("two texts:\n%s\n%s", first, second)
		}
	})
}
