package lowering

import (
	"math/bits"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// Random is the algorithm of RNGBitGenerator.
type Random int

const (
	// RandomPhilox is XLA's Philox generator, which cannot generate a tensor shard by shard. The
	// state is a vector of 2 or 3 Uint64.
	RandomPhilox Random = iota
	// RandomPCG is the PCG of math/rand/v2. It generates the same bits and states as GoMLX's Go
	// backend. Each element is computed from its position, so a sharded tensor is generated shard
	// by shard, with the same bits for every sharding and compiler.
	RandomPCG
)

// A PCG state is a 128-bit number, and the next state is state * A + C. The state after n steps is
// therefore state * A(n) + C(n), a jump by n steps. The state of an element is computed from the
// first state by one jump per dimension. Only the last jump is computed for each element.

// jump advances the state of a PCG generator by a number of steps: it multiplies the state by a and
// adds c.
type jump struct{ a, c word128 }

type word128 struct{ hi, lo uint64 }

func (x word128) mul(y word128) word128 {
	hi, lo := bits.Mul64(x.lo, y.lo)
	return word128{hi + x.hi*y.lo + x.lo*y.hi, lo}
}

func (x word128) add(y word128) word128 {
	lo, carry := bits.Add64(x.lo, y.lo, 0)
	hi, _ := bits.Add64(x.hi, y.hi, carry)
	return word128{hi, lo}
}

// compose returns a jump by the steps of both j and k.
func (j jump) compose(k jump) jump { return jump{j.a.mul(k.a), j.c.mul(k.a).add(k.c)} }

// pcgStep is the jump by one step, with the constants of math/rand/v2.
var pcgStep = jump{
	a: word128{2549297995355413924, 4865540595714422341},
	c: word128{6364136223846793005, 1442695040888963407},
}

// jumpBy returns the jump by n steps.
func jumpBy(n uint64) jump {
	j, power := jump{a: word128{0, 1}}, pcgStep
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			j = j.compose(power)
		}
		power = power.compose(power)
	}
	return j
}

// pcgBuilder adds the ops that generate random bits. It stores the first error, after which all
// methods return nil values.
type pcgBuilder struct {
	f   *Function
	err error
}

// state128 contains one 128-bit generator state for each element of a tensor, as two tensors of
// Uint64 words.
type state128 struct{ hi, lo compute.Value }

type jumps struct{ a, c state128 }

func (p *pcgBuilder) keepError(x compute.Value, err error) compute.Value {
	if p.err == nil {
		p.err = err
	}
	return x
}

func (p *pcgBuilder) addBinary(op func(x, y compute.Value) (compute.Value, error), x, y compute.Value) compute.Value {
	return p.keepError(op(x, y))
}

func (p *pcgBuilder) constant(x uint64) compute.Value { return p.keepError(p.f.Constant([]uint64{x})) }

func (p *pcgBuilder) constant128(x word128) state128 {
	return state128{p.constant(x.hi), p.constant(x.lo)}
}

func (p *pcgBuilder) add(x, y compute.Value) compute.Value { return p.addBinary(p.f.Add, x, y) }
func (p *pcgBuilder) mul(x, y compute.Value) compute.Value { return p.addBinary(p.f.Mul, x, y) }
func (p *pcgBuilder) low32Bits(x compute.Value) compute.Value {
	return p.addBinary(p.f.BitwiseAnd, x, p.constant(1<<32-1))
}
func (p *pcgBuilder) shiftRight(x compute.Value, n uint64) compute.Value {
	return p.addBinary(p.f.ShiftRightLogical, x, p.constant(n))
}

// mulHigh returns the upper 64 bits of the 128-bit products of x and y.
func (p *pcgBuilder) mulHigh(x, y compute.Value) compute.Value {
	x0, x1, y0, y1 := p.low32Bits(x), p.shiftRight(x, 32), p.low32Bits(y), p.shiftRight(y, 32)
	t := p.add(p.mul(x1, y0), p.shiftRight(p.mul(x0, y0), 32))
	w := p.add(p.low32Bits(t), p.mul(x0, y1))
	return p.add(p.add(p.mul(x1, y1), p.shiftRight(t, 32)), p.shiftRight(w, 32))
}

func (p *pcgBuilder) mul128(x, y state128) state128 {
	return state128{
		hi: p.add(p.mulHigh(x.lo, y.lo), p.add(p.mul(x.hi, y.lo), p.mul(x.lo, y.hi))),
		lo: p.mul(x.lo, y.lo),
	}
}

func (p *pcgBuilder) add128(x, y state128) state128 {
	lo := p.add(x.lo, y.lo)
	carry := p.convert(p.addBinary(p.f.LessThan, lo, y.lo), dtypes.Uint64)
	return state128{hi: p.add(p.add(x.hi, y.hi), carry), lo: lo}
}

func (p *pcgBuilder) convert(x compute.Value, dtype dtypes.DType) compute.Value {
	return p.keepError(p.f.ConvertDType(x, dtype))
}

func (p *pcgBuilder) applyJump(s state128, j jumps) state128 { return p.add128(p.mul128(s, j.a), j.c) }

// broadcast broadcasts words to dims. Axis i of x becomes axis axes[i].
func (p *pcgBuilder) broadcast(x compute.Value, dims, axes []int) compute.Value {
	return p.keepError(p.f.BroadcastInDim(x, shapes.Make(dtypes.Uint64, dims...), axes))
}

func (p *pcgBuilder) broadcast128(s state128, dims, axes []int) state128 {
	return state128{p.broadcast(s.hi, dims, axes), p.broadcast(s.lo, dims, axes)}
}

func (p *pcgBuilder) mapWords(s state128, f func(compute.Value) compute.Value) state128 {
	return state128{f(s.hi), f(s.lo)}
}

// jumpTable returns a table of jumps as constants. Element i is the jump by steps[i] steps.
func (p *pcgBuilder) jumpTable(steps []uint64) jumps {
	words := make([][]uint64, 4)
	for _, n := range steps {
		j := jumpBy(n)
		for i, w := range []uint64{j.a.hi, j.a.lo, j.c.hi, j.c.lo} {
			words[i] = append(words[i], w)
		}
	}
	tensor := func(flat []uint64) compute.Value {
		return p.keepError(p.f.Constant(flat, len(flat)))
	}
	return jumps{state128{tensor(words[0]), tensor(words[1])}, state128{tensor(words[2]), tensor(words[3])}}
}

// tableSize is the number of jumps in one constant. The jumps along a dimension are composed of
// such tables, one for each digit of the index in base tableSize.
const tableSize = 64

// jumpsAlongDim returns one jump for each word along a dimension of n elements. Consecutive
// elements are stride elements apart in row-major order, and a word contains perWord elements. Each
// jump includes first additional steps.
func (p *pcgBuilder) jumpsAlongDim(n, stride, perWord int, first uint64) jumps {
	var all jumps
	made := 0 // number of jumps so far; the lowest digit comes first
	add := func(steps []uint64) {
		t := p.jumpTable(steps)
		if made == 0 {
			all, made = t, len(steps)
			return
		}
		dims := []int{len(steps), made}
		hi := jumps{p.broadcast128(t.a, dims, []int{0}), p.broadcast128(t.c, dims, []int{0})}
		lo := jumps{p.broadcast128(all.a, dims, []int{1}), p.broadcast128(all.c, dims, []int{1})}
		made *= len(steps)
		flat := func(x compute.Value) compute.Value {
			return p.keepError(p.f.Reshape(x, made))
		}
		joined := jumps{p.mul128(hi.a, lo.a), p.add128(p.mul128(hi.c, lo.a), lo.c)}
		all = jumps{p.mapWords(joined.a, flat), p.mapWords(joined.c, flat)}
	}
	each := uint64(stride) // steps between consecutive values of the digit
	rest := n
	if stride%perWord != 0 { // the lowest digit counts elements inside a word
		steps := make([]uint64, perWord)
		for i := range steps {
			steps[i] = first + uint64(i*stride/perWord)
		}
		add(steps)
		first, rest = 0, (n+perWord-1)/perWord
	} else {
		each /= uint64(perWord)
	}
	for made == 0 || rest > 1 {
		steps := make([]uint64, min(rest, tableSize))
		for i := range steps {
			steps[i] = first + uint64(i)*each
		}
		add(steps)
		first, each, rest = 0, each*tableSize, (rest+tableSize-1)/tableSize
	}
	if made == n {
		return all
	}
	cut := func(x compute.Value) compute.Value {
		return p.keepError(p.f.Slice(x, []int{0}, []int{n}, []int{1}))
	}
	return jumps{p.mapWords(all.a, cut), p.mapWords(all.c, cut)}
}

// pcgBits returns random bits of the given shape and the next state.
func (f *Function) pcgBits(state compute.Value, shape shapes.Shape) (next, random compute.Value, err error) {
	p := &pcgBuilder{f: f}
	scalar := func(i int) compute.Value {
		x := p.keepError(f.Slice(state, []int{i}, []int{i + 1}, []int{1}))
		return p.keepError(f.Reshape(x))
	}
	first := state128{scalar(0), scalar(1)}
	size := shape.DType.Size()
	perWord := 8 / size
	words := uint64(shape.Size()*size+7) / 8

	// The state after the draw. Its other elements do not change.
	j := jumpBy(words)
	after := p.applyJump(first, jumps{p.constant128(j.a), p.constant128(j.c)})
	parts := []compute.Value{p.swapBytes(after.hi), p.swapBytes(after.lo)}
	rest, err := f.Shape(state)
	if err != nil {
		return nil, nil, err
	}
	for i := 2; i < rest.Size(); i++ {
		parts = append(parts, scalar(i))
	}
	for i := range parts {
		parts[i] = p.broadcast(parts[i], []int{1}, nil)
	}
	next = p.keepError(f.Concatenate(0, parts...))
	random = p.elementBits(first, shape, perWord)
	return next, random, p.err
}

func (p *pcgBuilder) elementBits(s state128, shape shapes.Shape, perWord int) compute.Value {
	all := shape.Dimensions
	if shape.Size() == 0 {
		return p.convert(p.broadcast(p.constant(0), all, nil), shape.DType)
	}
	// Dimensions of size 1 need no jump.
	var dims []int
	for _, d := range all {
		if d > 1 {
			dims = append(dims, d)
		}
	}
	if len(dims) == 0 {
		dims = []int{1}
	}
	var inside compute.Value // the index of the element in its word; nil for index 0
	stride, first := shape.Size(), uint64(1)
	for i, d := range dims {
		stride /= d
		here, t := dims[:i+1], p.jumpsAlongDim(d, stride, perWord, first)
		first = 0
		before := indices(i)
		s = p.applyJump(p.broadcast128(s, here, before),
			jumps{p.broadcast128(t.a, here, []int{i}), p.broadcast128(t.c, here, []int{i})})
		if inside != nil {
			inside = p.broadcast(inside, here, before)
		}
		if stride%perWord == 0 {
			continue
		}
		place := p.moduloPowerOfTwo(p.mul(p.iota(here, i), p.constant(uint64(stride))), perWord)
		if inside == nil {
			inside = place
			continue
		}
		// The sum of two indices inside a word may exceed the word.
		sum := p.add(place, inside)
		beyond := p.addBinary(p.f.GreaterOrEqual, sum, p.constant(uint64(perWord)))
		step := p.applyJump(s, jumps{p.constant128(pcgStep.a), p.constant128(pcgStep.c)})
		s = state128{p.selectWord(beyond, step.hi, s.hi), p.selectWord(beyond, step.lo, s.lo)}
		inside = p.moduloPowerOfTwo(sum, perWord)
	}
	x := p.outputWord(s)
	if perWord > 1 {
		size := 64 / uint64(perWord)
		if inside != nil {
			x = p.addBinary(p.f.ShiftRightLogical, x, p.mul(inside, p.constant(size)))
		}
		x = p.addBinary(p.f.BitwiseAnd, x, p.constant(1<<size-1))
	}
	x = p.convert(x, shape.DType)
	if slices.Equal(dims, all) {
		return x
	}
	return p.keepError(p.f.Reshape(x, all...))
}

// outputWord computes a random word from a generator state, with the output function of PCG-DXSM.
func (p *pcgBuilder) outputWord(s state128) compute.Value {
	xor := func(x, y compute.Value) compute.Value { return p.addBinary(p.f.BitwiseXor, x, y) }
	x := xor(s.hi, p.shiftRight(s.hi, 32))
	x = p.mul(x, p.constant(0xda942042e4dd58b5))
	x = xor(x, p.shiftRight(x, 48))
	return p.mul(x, p.addBinary(p.f.BitwiseOr, s.lo, p.constant(1)))
}

// swapBytes reverses the byte order of a word. The Go backend reads the output of math/rand/v2 in
// the other byte order.
func (p *pcgBuilder) swapBytes(x compute.Value) compute.Value {
	for _, half := range []struct{ n, mask uint64 }{{8, 0x00ff00ff00ff00ff}, {16, 0x0000ffff0000ffff}, {32, 1<<32 - 1}} {
		up := p.addBinary(p.f.ShiftLeft, p.addBinary(p.f.BitwiseAnd, x, p.constant(half.mask)), p.constant(half.n))
		down := p.addBinary(p.f.BitwiseAnd, p.shiftRight(x, half.n), p.constant(half.mask))
		x = p.addBinary(p.f.BitwiseOr, up, down)
	}
	return x
}

func (p *pcgBuilder) moduloPowerOfTwo(x compute.Value, perWord int) compute.Value {
	return p.addBinary(p.f.BitwiseAnd, x, p.constant(uint64(perWord-1)))
}

func (p *pcgBuilder) iota(dims []int, axis int) compute.Value {
	return p.keepError(p.f.Iota(shapes.Make(dtypes.Uint64, dims...), axis))
}

func (p *pcgBuilder) selectWord(condition, x, y compute.Value) compute.Value {
	return p.keepError(p.f.Where(condition, x, y))
}
