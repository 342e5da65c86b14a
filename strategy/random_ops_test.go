package strategy_test

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
)

// plain generates an op that every replica executes locally. Ops keep numbers small and are
// continuous, so that rounding errors remain small: only exact values are compared or converted to
// integers.
func (g *generator) plain() (instruction, bool) {
	x := g.pick()
	k := g.kinds[x]
	k.dims = slices.Clone(k.dims)
	float, rank := k.dtype.IsFloat(), len(k.dims)
	axis := 0
	if rank > 0 {
		axis = g.rng.IntN(rank)
	}
	one := func(op string, ints ...int) (instruction, bool) {
		return instruction{op: op, in: []int{x}, ints: ints, kinds: []kind{k}}, true
	}
	none := func() (instruction, bool) { return instruction{}, false }
	computed := func() { k.exact = k.exact && !float }
	join := func(other kind) {
		k.exact, k.coarse, k.mirrored = k.exact && other.exact, k.coarse || other.coarse, k.mirrored && other.mirrored
	}
	n := g.rng.IntN(22)
	// GoMLX caches the scalars of a graph and uses them in closures that cannot access them, and it
	// does not support nested closures. Closures therefore use ops without scalars. Several GoMLX
	// ops do not support empty tensors.
	if g.depth > 0 && !slices.Contains([]int{0, 1, 2, 9, 10, 11, 12, 13, 14, 16}, n) {
		return none()
	}
	if k.size() == 0 && !slices.Contains([]int{1, 2, 6, 9, 10, 14, 20}, n) {
		return none()
	}
	switch n {
	case 0: // an elementwise function
		if k.dtype == dtypes.Bool {
			return one("not")
		}
		computed()
		return one([]string{"neg", "tanh", "sigmoid", "square"}[g.rng.IntN(closureOr(g, 1, 4))])
	case 1, 2: // of two values
		y, ok := g.pickWhere(func(o kind) bool { return same(o, k) })
		if !ok {
			return none()
		}
		join(g.kinds[y])
		if k.dtype == dtypes.Bool {
			return instruction{op: "and", in: []int{x, y}, kinds: []kind{k}}, true
		}
		computed()
		return instruction{op: []string{"add", "sub", "mul"}[g.rng.IntN(closureOr(g, 2, 3))], in: []int{x, y},
			kinds: []kind{k}}, true
	case 3, 4: // contract one axis of each
		if !float || rank == 0 {
			return none()
		}
		other := -1
		y, ok := g.pickWhere(func(o kind) bool {
			if o.dtype != k.dtype || len(o.dims)+rank > 6 {
				return false
			}
			other = slices.Index(o.dims, k.dims[axis])
			return other >= 0 && k.dims[axis] > 0 && k.size()*o.size()/k.dims[axis]/k.dims[axis] <= 2048
		})
		if !ok {
			return none()
		}
		o := g.kinds[y]
		join(o)
		k.exact = false
		k.dims = append(slices.Delete(k.dims, axis, axis+1), slices.Delete(slices.Clone(o.dims), other, other+1)...)
		return instruction{op: "contract", in: []int{x, y}, ints: []int{axis, other}, kinds: []kind{k}}, true
	case 5: // a batched product
		if !float || rank < 2 || k.size() == 0 {
			return none()
		}
		contract := g.rng.IntN(rank)
		if contract == axis || k.size()*k.size()/k.dims[axis]/k.dims[contract] > 4096 {
			return none()
		}
		rest := []int{}
		for d, size := range k.dims {
			if d != axis && d != contract {
				rest = append(rest, size)
			}
		}
		k.exact = false
		k.dims = slices.Concat([]int{k.dims[axis]}, rest, rest)
		if len(k.dims) > 6 {
			return none()
		}
		return one("gram", axis, contract)
	case 6, 7: // reduce
		if k.dtype == dtypes.Bool || rank == 0 {
			return none()
		}
		computed()
		op := "sum"
		if g.chance(30) {
			op = "max"
			if k.dims[axis] == 0 {
				return none()
			}
		}
		if g.chance(30) {
			if op == "max" && k.size() == 0 {
				return none()
			}
			k.dims = nil
			return one(op, -1)
		}
		k.dims = slices.Delete(k.dims, axis, axis+1)
		return one(op, axis)
	case 8:
		if !float || rank == 0 || k.dims[axis] == 0 {
			return none()
		}
		k.exact = false
		return one("softmax", axis)
	case 9, 10:
		order := g.rng.Perm(rank)
		old := slices.Clone(k.dims)
		for to, from := range order {
			k.dims[to] = old[from]
		}
		return one("transpose", order...)
	case 11, 12:
		return g.reshape(x, k)
	case 13:
		if rank == 0 || k.dims[axis] == 0 {
			return none()
		}
		from := g.rng.IntN(k.dims[axis])
		to := from + g.rng.IntN(k.dims[axis]-from+1)
		if float {
			to = max(to, from+1)
		}
		stride := 1 + g.rng.IntN(2)
		k.dims[axis] = (to - from + stride - 1) / stride
		return one("slice", axis, from, to, stride)
	case 14:
		y, ok := g.pickWhere(func(o kind) bool {
			if o.dtype != k.dtype || len(o.dims) != rank || rank == 0 {
				return false
			}
			a, b := slices.Clone(o.dims), slices.Clone(k.dims)
			a[axis], b[axis] = 0, 0
			return slices.Equal(a, b)
		})
		if !ok || k.size() > 1024 {
			return none()
		}
		join(g.kinds[y])
		k.dims[axis] += g.kinds[y].dims[axis]
		return instruction{op: "concat", in: []int{x, y}, ints: []int{axis}, kinds: []kind{k}}, true
	case 15: // rows by number
		y, ok := g.pickWhere(func(o kind) bool {
			return o.dtype == dtypes.Int32 && o.exact && len(o.dims) <= 2 && o.size() <= 32
		})
		if !ok || rank == 0 || k.dims[0] == 0 || float && g.kinds[y].size() == 0 || k.size()*g.kinds[y].size() > 2048 {
			return none()
		}
		join(g.kinds[y])
		k.dims = append(slices.Clone(g.kinds[y].dims), k.dims[1:]...)
		return instruction{op: "gather", in: []int{x, y}, kinds: []kind{k}}, true
	case 16:
		y, ok := g.pickWhere(func(o kind) bool { return same(o, k) })
		c, ok2 := g.pickWhere(func(o kind) bool {
			return o.dtype == dtypes.Bool && (len(o.dims) == 0 || slices.Equal(o.dims, k.dims))
		})
		if !ok || !ok2 {
			return none()
		}
		join(g.kinds[y])
		join(g.kinds[c])
		return instruction{op: "where", in: []int{c, x, y}, kinds: []kind{k}}, true
	case 17:
		if !k.exact || k.dtype == dtypes.Bool {
			return none()
		}
		k.dtype, k.coarse = dtypes.Bool, false
		return one("positive")
	case 18:
		to := randomDTypes[g.rng.IntN(len(randomDTypes))]
		if float && !to.IsFloat() && !k.exact || to == dtypes.Bool || to == k.dtype {
			return none()
		}
		k.dtype, k.coarse = to, (k.coarse || to == dtypes.BFloat16) && to.IsFloat()
		k.exact = k.exact && to != dtypes.BFloat16
		return one("convert")
	case 19:
		if k.size() > 256 || rank > 3 {
			return none()
		}
		n := 1 + g.rng.IntN(4)
		k.dims = append([]int{n}, k.dims...)
		return one("broadcast", n)
	case 20:
		if rank == 0 || k.dtype == dtypes.Bool {
			return none()
		}
		if g.chance(50) || k.size() == 0 {
			return one("reverse", axis)
		}
		a, b := g.rng.IntN(3), g.rng.IntN(3)
		k.dims[axis] += a + b
		return one("pad", axis, a, b)
	}
	if g.chance(50) && rank > 0 && k.size() > 0 && k.dtype != dtypes.Bool {
		return one("sort", axis)
	}
	k = kind{dtype: randomDTypes[g.rng.IntN(len(randomDTypes))], exact: true, mirrored: true}
	k.dims = g.dims(k.dtype)
	k.coarse = k.dtype == dtypes.BFloat16
	return instruction{op: "const", ints: []int{g.rng.IntN(1000)}, kinds: []kind{k}}, true
}

// closureOr returns a in a closure, otherwise b.
func closureOr(g *generator, a, b int) int {
	if g.depth > 0 {
		return a
	}
	return b
}

// reshape merges two adjacent dimensions, or splits one.
func (g *generator) reshape(x int, k kind) (instruction, bool) {
	rank := len(k.dims)
	switch {
	case rank == 0 || g.chance(10):
		at := g.rng.IntN(rank + 1)
		k.dims = slices.Insert(k.dims, at, 1)
	case rank > 1 && g.chance(50):
		at := g.rng.IntN(rank - 1)
		k.dims[at] *= k.dims[at+1]
		k.dims = slices.Delete(k.dims, at+1, at+2)
	default:
		at := g.rng.IntN(rank)
		part := 2 + g.rng.IntN(3)
		if k.dims[at]%part != 0 || rank > 4 {
			return instruction{}, false
		}
		k.dims[at] /= part
		k.dims = slices.Insert(k.dims, at+g.rng.IntN(2), part)
	}
	return instruction{op: "reshape", in: []int{x}, ints: k.dims, kinds: []kind{k}}, true
}
