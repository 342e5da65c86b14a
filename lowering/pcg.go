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
	// RandomPhilox is XLA's Philox generator, which generates a tensor as a unit. The state is a
	// vector of 2 or 3 Uint64.
	RandomPhilox Random = iota
	// RandomPCG is the generator of GoMLX's Go backend, the PCG of math/rand/v2: it generates the
	// same bits and the same next state. Each element is computed from its own position. A tensor
	// that is split over devices is therefore generated shard by shard, with the same bits for
	// every split and every compiler.
	RandomPCG
)

// A PCG state is a 128-bit number, and the next state is state * A + C. The state after n steps is
// therefore state * A(n) + C(n): a jump. The state of an element is the first state of the tensor
// after one jump per dimension, by the element's index in the dimension. Only the last jump is
// computed for each element.

// jump is the effect of n steps on a state: multiply by a, add c.
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

// then returns the jump of j's steps followed by k's steps.
func (j jump) then(k jump) jump { return jump{j.a.mul(k.a), j.c.mul(k.a).add(k.c)} }

// pcgStep is one step, with the constants of math/rand/v2.
var pcgStep = jump{
	a: word128{2549297995355413924, 4865540595714422341},
	c: word128{6364136223846793005, 1442695040888963407},
}

// jumpOf returns the jump of n steps.
func jumpOf(n uint64) jump {
	j, power := jump{a: word128{0, 1}}, pcgStep
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			j = j.then(power)
		}
		power = power.then(power)
	}
	return j
}

// pcg writes the ops of a draw of random bits. After the first error the later ops have nil
// operands and fail too.
type pcg struct {
	f   *Function
	err error
}

// state128 contains the states of a tensor, and jumps contains a table of jumps, each as two
// tensors of words.
type state128 struct{ hi, lo compute.Value }

type jumps struct{ a, c state128 }

func (p *pcg) do(x compute.Value, err error) compute.Value {
	if p.err == nil {
		p.err = err
	}
	return x
}

func (p *pcg) with(op func(x, y compute.Value) (compute.Value, error), x, y compute.Value) compute.Value {
	return p.do(op(x, y))
}

func (p *pcg) word(x uint64) compute.Value { return p.do(p.f.Constant([]uint64{x})) }

func (p *pcg) words(x word128) state128 { return state128{p.word(x.hi), p.word(x.lo)} }

func (p *pcg) add(x, y compute.Value) compute.Value { return p.with(p.f.Add, x, y) }
func (p *pcg) mul(x, y compute.Value) compute.Value { return p.with(p.f.Mul, x, y) }
func (p *pcg) low(x compute.Value) compute.Value {
	return p.with(p.f.BitwiseAnd, x, p.word(1<<32-1))
}
func (p *pcg) high(x compute.Value, n uint64) compute.Value {
	return p.with(p.f.ShiftRightLogical, x, p.word(n))
}

// mulHigh returns the upper word of the product.
func (p *pcg) mulHigh(x, y compute.Value) compute.Value {
	x0, x1, y0, y1 := p.low(x), p.high(x, 32), p.low(y), p.high(y, 32)
	t := p.add(p.mul(x1, y0), p.high(p.mul(x0, y0), 32))
	w := p.add(p.low(t), p.mul(x0, y1))
	return p.add(p.add(p.mul(x1, y1), p.high(t, 32)), p.high(w, 32))
}

func (p *pcg) mul128(x, y state128) state128 {
	return state128{
		hi: p.add(p.mulHigh(x.lo, y.lo), p.add(p.mul(x.hi, y.lo), p.mul(x.lo, y.hi))),
		lo: p.mul(x.lo, y.lo),
	}
}

func (p *pcg) add128(x, y state128) state128 {
	lo := p.add(x.lo, y.lo)
	carry := p.convert(p.with(p.f.LessThan, lo, y.lo), dtypes.Uint64)
	return state128{hi: p.add(p.add(x.hi, y.hi), carry), lo: lo}
}

func (p *pcg) convert(x compute.Value, dtype dtypes.DType) compute.Value {
	return p.do(p.f.ConvertDType(x, dtype))
}

func (p *pcg) jump(s state128, j jumps) state128 { return p.add128(p.mul128(s, j.a), j.c) }

// spread broadcasts words to dims. axes are the positions of the dimensions of x in dims.
func (p *pcg) spread(x compute.Value, dims, axes []int) compute.Value {
	return p.do(p.f.BroadcastInDim(x, shapes.Make(dtypes.Uint64, dims...), axes))
}

func (p *pcg) spread128(s state128, dims, axes []int) state128 {
	return state128{p.spread(s.hi, dims, axes), p.spread(s.lo, dims, axes)}
}

func (p *pcg) each(s state128, f func(compute.Value) compute.Value) state128 {
	return state128{f(s.hi), f(s.lo)}
}

// table returns a tensor of the jumps by the given numbers of steps.
func (p *pcg) table(steps []uint64) jumps {
	words := make([][]uint64, 4)
	for _, n := range steps {
		j := jumpOf(n)
		for i, w := range []uint64{j.a.hi, j.a.lo, j.c.hi, j.c.lo} {
			words[i] = append(words[i], w)
		}
	}
	tensor := func(flat []uint64) compute.Value {
		return p.do(p.f.Constant(flat, len(flat)))
	}
	return jumps{state128{tensor(words[0]), tensor(words[1])}, state128{tensor(words[2]), tensor(words[3])}}
}

// digits is the number of jumps in one constant of the program. The jumps of a dimension are
// composed of such constants, one for each digit of the index in base digits.
const digits = 64

// along returns the table of jumps for a dimension of n elements that are stride elements apart,
// with perWord elements per word. Each jump includes the first steps.
func (p *pcg) along(n, stride, perWord int, first uint64) jumps {
	var all jumps
	made := 0 // number of jumps so far; the lowest digit comes first
	add := func(steps []uint64) {
		t := p.table(steps)
		if made == 0 {
			all, made = t, len(steps)
			return
		}
		dims := []int{len(steps), made}
		hi := jumps{p.spread128(t.a, dims, []int{0}), p.spread128(t.c, dims, []int{0})}
		lo := jumps{p.spread128(all.a, dims, []int{1}), p.spread128(all.c, dims, []int{1})}
		made *= len(steps)
		flat := func(x compute.Value) compute.Value {
			return p.do(p.f.Reshape(x, made))
		}
		joined := jumps{p.mul128(hi.a, lo.a), p.add128(p.mul128(hi.c, lo.a), lo.c)}
		all = jumps{p.each(joined.a, flat), p.each(joined.c, flat)}
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
		steps := make([]uint64, min(rest, digits))
		for i := range steps {
			steps[i] = first + uint64(i)*each
		}
		add(steps)
		first, each, rest = 0, each*digits, (rest+digits-1)/digits
	}
	if made == n {
		return all
	}
	cut := func(x compute.Value) compute.Value {
		return p.do(p.f.Slice(x, []int{0}, []int{n}, []int{1}))
	}
	return jumps{p.each(all.a, cut), p.each(all.c, cut)}
}

// pcgBits returns random bits of the given shape and the state after the draw.
func (f *Function) pcgBits(state compute.Value, shape shapes.Shape) (next, random compute.Value, err error) {
	p := &pcg{f: f}
	scalar := func(i int) compute.Value {
		x := p.do(f.Slice(state, []int{i}, []int{i + 1}, []int{1}))
		return p.do(f.Reshape(x))
	}
	first := state128{scalar(0), scalar(1)}
	size := shape.DType.Size()
	perWord := 8 / size
	words := uint64(shape.Size()*size+7) / 8

	// The state after the draw. Its other elements do not change.
	j := jumpOf(words)
	after := p.jump(first, jumps{p.words(j.a), p.words(j.c)})
	parts := []compute.Value{p.swapBytes(after.hi), p.swapBytes(after.lo)}
	rest, err := f.Shape(state)
	if err != nil {
		return nil, nil, err
	}
	for i := 2; i < rest.Size(); i++ {
		parts = append(parts, scalar(i))
	}
	for i := range parts {
		parts[i] = p.spread(parts[i], []int{1}, nil)
	}
	next = p.do(f.Concatenate(0, parts...))
	random = p.elements(first, shape, perWord)
	return next, random, p.err
}

// elements computes the random bits of all elements.
func (p *pcg) elements(s state128, shape shapes.Shape, perWord int) compute.Value {
	all := shape.Dimensions
	if shape.Size() == 0 {
		return p.convert(p.spread(p.word(0), all, nil), shape.DType)
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
		here, t := dims[:i+1], p.along(d, stride, perWord, first)
		first = 0
		before := indices(i)
		s = p.jump(p.spread128(s, here, before), jumps{p.spread128(t.a, here, []int{i}), p.spread128(t.c, here, []int{i})})
		if inside != nil {
			inside = p.spread(inside, here, before)
		}
		if stride%perWord == 0 {
			continue
		}
		place := p.low3(p.mul(p.iota(here, i), p.word(uint64(stride))), perWord)
		if inside == nil {
			inside = place
			continue
		}
		// The sum of two indices inside a word may exceed the word.
		sum := p.add(place, inside)
		beyond := p.with(p.f.GreaterOrEqual, sum, p.word(uint64(perWord)))
		step := p.jump(s, jumps{p.words(pcgStep.a), p.words(pcgStep.c)})
		s = state128{p.either(beyond, step.hi, s.hi), p.either(beyond, step.lo, s.lo)}
		inside = p.low3(sum, perWord)
	}
	x := p.output(s)
	if perWord > 1 {
		size := 64 / uint64(perWord)
		if inside != nil {
			x = p.with(p.f.ShiftRightLogical, x, p.mul(inside, p.word(size)))
		}
		x = p.with(p.f.BitwiseAnd, x, p.word(1<<size-1))
	}
	x = p.convert(x, shape.DType)
	if slices.Equal(dims, all) {
		return x
	}
	return p.do(p.f.Reshape(x, all...))
}

// output computes the random word of a state.
func (p *pcg) output(s state128) compute.Value {
	xor := func(x, y compute.Value) compute.Value { return p.with(p.f.BitwiseXor, x, y) }
	x := xor(s.hi, p.high(s.hi, 32))
	x = p.mul(x, p.word(0xda942042e4dd58b5))
	x = xor(x, p.high(x, 48))
	return p.mul(x, p.with(p.f.BitwiseOr, s.lo, p.word(1)))
}

// swapBytes reverses the byte order of a word. The Go backend does this with the words of the state
// that it returns: it reads the output of math/rand/v2 in the other byte order.
func (p *pcg) swapBytes(x compute.Value) compute.Value {
	for _, half := range []struct{ n, mask uint64 }{{8, 0x00ff00ff00ff00ff}, {16, 0x0000ffff0000ffff}, {32, 1<<32 - 1}} {
		up := p.with(p.f.ShiftLeft, p.with(p.f.BitwiseAnd, x, p.word(half.mask)), p.word(half.n))
		down := p.with(p.f.BitwiseAnd, p.high(x, half.n), p.word(half.mask))
		x = p.with(p.f.BitwiseOr, up, down)
	}
	return x
}

// low3 returns x modulo perWord, which is a power of two.
func (p *pcg) low3(x compute.Value, perWord int) compute.Value {
	return p.with(p.f.BitwiseAnd, x, p.word(uint64(perWord-1)))
}

func (p *pcg) iota(dims []int, axis int) compute.Value {
	return p.do(p.f.Iota(shapes.Make(dtypes.Uint64, dims...), axis))
}

func (p *pcg) either(condition, x, y compute.Value) compute.Value {
	return p.do(p.f.Where(condition, x, y))
}
