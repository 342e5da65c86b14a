package strategy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// A randomProgram is a step function as data. It can be traced on R replicas of P logical devices
// with its annotations and collectives, and on one device without them, where one graph has all
// replicas.
type randomProgram struct {
	seed              uint64
	replicas, devices int
	args              []randomTensor
	vars              []randomTensor
	code              []instruction
	loss              []int // float values whose means add up to the loss
	results           []randomResult
	updates           []randomUpdate
	loop              bool            // whether it runs as a loop on the devices
	axes              []sharding.Axis // of the logical devices, if they are named
}

// kind has the static properties of a value.
type kind struct {
	dtype dtypes.DType
	dims  []int
	// exact values have the same bits for every order of summation; coarse values were converted to
	// bfloat16; mirrored values are equal on all replicas.
	exact, coarse, mirrored bool
}

func (k kind) size() int { return sizeOf(k.dims) }

func (k kind) String() string { return fmt.Sprintf("%s%v", k.dtype, k.dims) }

func sizeOf(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

type randomTensor struct {
	kind
	note   logical.Annotation
	onRead bool // of a variable: each replica has its own component
}

type randomResult struct {
	value int
	note  logical.Annotation
}

type randomUpdate struct{ variable, value int }

// instruction appends its results to the values. Its operands are indices of values.
type instruction struct {
	op    string
	in    []int
	ints  []int
	note  logical.Annotation
	body  *block
	kinds []kind
}

// block is a region or a closure. Its values are its inputs, followed in a region by the step's
// variables, and then the values of its code.
type block struct {
	code []instruction
	outs []int
}

func (i instruction) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%v %v", i.op, i.in, i.ints)
	if i.note.Kind() != logical.KindNone {
		fmt.Fprintf(&b, " %s", i.note)
	}
	fmt.Fprintf(&b, " -> %v", i.kinds)
	if i.body != nil {
		fmt.Fprintf(&b, " {")
		for _, in := range i.body.code {
			fmt.Fprintf(&b, " %s;", in)
		}
		fmt.Fprintf(&b, " return %v }", i.body.outs)
	}
	return b.String()
}

func (p *randomProgram) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %dx%d %v, loop %t\n", p.seed, p.replicas, p.devices, p.axes, p.loop)
	n := 0
	for i, a := range p.args {
		fmt.Fprintf(&b, "%%%d = argument %d %s mirrored %t %s\n", n, i, a.kind, a.mirrored, a.note)
		n++
	}
	for i, v := range p.vars {
		fmt.Fprintf(&b, "%%%d = variable %d %s onRead %t %s\n", n, i, v.kind, v.onRead, v.note)
		n++
	}
	for _, in := range p.code {
		fmt.Fprintf(&b, "%%%d = %s\n", n, in)
		n += len(in.kinds)
	}
	fmt.Fprintf(&b, "loss %v results %v updates %v\n", p.loss, p.results, p.updates)
	return b.String()
}

// generator generates a program.
type generator struct {
	rng    *rand.Rand
	p      *randomProgram
	kinds  []kind
	code   []instruction
	region bool // inside a region or a closure: no annotations, collectives or regions
	depth  int
	assign int  // percentage of the values that are assigned, in addition to annotated values
	on     bool // inside a region
}

var randomDTypes = []dtypes.DType{
	dtypes.Float32, dtypes.Float32, dtypes.Float32, dtypes.Float32, dtypes.Float64, dtypes.BFloat16,
	dtypes.Int32, dtypes.Int32, dtypes.Bool,
}

func (g *generator) chance(percent int) bool { return g.rng.IntN(100) < percent }

// dims generates a shape. Only integers and booleans may be empty, because GoMLX has no gradients
// of empty tensors.
func (g *generator) dims(dtype dtypes.DType) []int {
	dims := make([]int, []int{0, 1, 1, 2, 2, 2, 3, 3, 4}[g.rng.IntN(9)])
	for i := range dims {
		dims[i] = []int{1, 2, 3, 4, 4, 8, 8, 6}[g.rng.IntN(8)]
		if !dtype.IsFloat() && g.chance(5) {
			dims[i] = 0
		}
	}
	for sizeOf(dims) > 1024 {
		dims[slices.Index(dims, slices.Max(dims))] = 2
	}
	return dims
}

// annotation generates an annotation that fits the shape.
func (g *generator) annotation(dims []int) logical.Annotation {
	if len(g.p.axes) > 0 && g.chance(70) {
		return g.over(dims)
	}
	switch g.rng.IntN(5) {
	case 0:
		return logical.Replicated()
	case 1:
		return logical.AssignTo(g.rng.IntN(g.p.devices))
	}
	parts := slices.Clone(dims)
	for i := range parts {
		parts[i] = 1
	}
	rest := g.p.devices
	for range 8 * len(dims) {
		if rest == 1 {
			return logical.SplitInto(parts...)
		}
		i := g.rng.IntN(len(dims))
		if dims[i]%(parts[i]*2) == 0 {
			parts[i] *= 2
			rest /= 2
		}
	}
	return logical.Annotation{}
}

// over generates a split over some of the axes.
func (g *generator) over(dims []int) logical.Annotation {
	parts, names := make([]int, len(dims)), make([]string, len(dims))
	for _, at := range g.rng.Perm(len(g.p.axes)) {
		axis := g.p.axes[at]
		if len(dims) == 0 || g.chance(30) {
			continue
		}
		i := g.rng.IntN(len(dims))
		if parts[i] = max(parts[i], 1); dims[i]%(parts[i]*axis.Size) != 0 {
			continue
		}
		parts[i] *= axis.Size
		if names[i] != "" {
			names[i] += ","
		}
		names[i] += axis.Name
	}
	return logical.SplitOverAxes(names...)
}

func (g *generator) maybeAnnotation(dims []int, percent int) logical.Annotation {
	if !g.chance(percent) {
		return logical.Annotation{}
	}
	return g.annotation(dims)
}

// newRandomProgram generates the program of a seed.
func newRandomProgram(seed uint64) *randomProgram { return newAssignedProgram(seed, 0) }

// newAssignedProgram generates the program of a seed in which a percentage of the values is
// assigned, including values in loop bodies and branches.
func newAssignedProgram(seed uint64, percent int) *randomProgram {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	meshes := [][2]int{{1, 2}, {2, 1}, {2, 2}, {2, 2}, {4, 1}, {1, 4}, {2, 4}, {4, 2}, {1, 8}, {8, 1}, {1, 1}}
	mesh := meshes[rng.IntN(len(meshes))]
	p := &randomProgram{seed: seed, replicas: mesh[0], devices: mesh[1], loop: rng.IntN(4) == 0}
	return p.generate(rng, percent)
}

// newNamedProgram generates the program of a seed on a mesh with named axes. Most of its
// annotations split over some of these axes.
func newNamedProgram(seed uint64) *randomProgram {
	rng := rand.New(rand.NewPCG(seed, 0xa1e5))
	meshes := [][]int{{1, 2, 2}, {2, 2, 2}, {1, 2, 2, 2}, {1, 4, 2}, {1, 2, 4}, {2, 4}, {4, 2}, {2, 2, 1}}
	sizes := meshes[rng.IntN(len(meshes))]
	p := &randomProgram{seed: seed, replicas: sizes[0], devices: sizeOf(sizes[1:]), loop: rng.IntN(4) == 0}
	for i, size := range sizes[1:] {
		p.axes = append(p.axes, sharding.Axis{Name: []string{"model", "sequence", "expert"}[i], Size: size})
	}
	return p.generate(rng, 0)
}

func (p *randomProgram) generate(rng *rand.Rand, percent int) *randomProgram {
	g := &generator{rng: rng, p: p, assign: percent}
	for range 1 + rng.IntN(3) {
		k := kind{dtype: randomDTypes[rng.IntN(len(randomDTypes))], exact: true, mirrored: g.chance(40)}
		k.dims = g.dims(k.dtype)
		k.coarse = k.dtype == dtypes.BFloat16
		p.args = append(p.args, randomTensor{kind: k, note: g.maybeAnnotation(k.dims, 50)})
		g.kinds = append(g.kinds, k)
	}
	for range rng.IntN(4) {
		dtype := []dtypes.DType{dtypes.Float32, dtypes.Float32, dtypes.Float64, dtypes.BFloat16, dtypes.Int32}[rng.IntN(5)]
		v := randomTensor{kind: kind{dtype: dtype, dims: g.dims(dtype)}, onRead: g.chance(25)}
		v.exact, v.coarse, v.mirrored = !dtype.IsFloat(), dtype == dtypes.BFloat16, !v.onRead
		v.note = g.maybeAnnotation(v.dims, 60)
		p.vars = append(p.vars, v)
		g.kinds = append(g.kinds, v.kind)
	}
	g.grow(4 + rng.IntN(20))
	p.code = g.code
	g.finish()
	return p
}

// finish selects the values that the step returns and writes.
func (g *generator) finish() {
	p := g.p
	for i := range slices.Backward(g.kinds) {
		if g.kinds[i].dtype.IsFloat() && len(p.loss) < 4 && g.chance(50) {
			p.loss = append(p.loss, i)
		}
	}
	result := func(i int) {
		note := g.maybeAnnotation(g.kinds[i].dims, 30)
		p.results = append(p.results, randomResult{i, note})
	}
	for i := range g.kinds {
		if i >= len(g.kinds)-3 || g.chance(20) {
			result(i)
		}
	}
	if g.chance(10) { // the same value twice
		result(p.results[0].value)
	}
	first := len(p.args)
	for i, v := range p.vars {
		for j := range slices.Backward(g.kinds) {
			k := g.kinds[j]
			if k.dtype == v.dtype && slices.Equal(k.dims, v.dims) && (v.onRead || k.mirrored) && (j >= first+len(p.vars) ||
				g.chance(20)) && g.chance(60) {
				p.updates = append(p.updates, randomUpdate{i, j})
				break
			}
		}
	}
}

// grow adds up to n instructions.
func (g *generator) grow(n int) {
	for tries := 0; len(g.code) < n && tries < 20*n; tries++ {
		var in instruction
		ok := false
		switch {
		case !g.region && g.chance(12) && g.p.devices > 1:
			in, ok = g.annotate()
		case !g.region && g.chance(14):
			in, ok = g.makeRegion()
		case !g.region && g.chance(14):
			in, ok = g.collective()
		case g.depth == 0 && g.chance(8):
			in, ok = g.closure()
		default:
			in, ok = g.plain()
		}
		if ok {
			g.add(in)
		}
		if ok && !g.on && g.assign > 0 && g.p.devices > 1 && g.chance(g.assign) {
			x := len(g.kinds) - 1
			g.add(instruction{op: "annotate", in: []int{x}, note: logical.AssignTo(g.rng.IntN(g.p.devices)),
				kinds: []kind{g.kinds[x]}})
		}
	}
}

func (g *generator) add(in instruction) {
	g.code = append(g.code, in)
	g.kinds = append(g.kinds, in.kinds...)
}

// pick selects a value, preferably a recent one.
func (g *generator) pick() int {
	n := len(g.kinds)
	if g.chance(50) {
		return n - 1 - g.rng.IntN(min(4, n))
	}
	return g.rng.IntN(n)
}

// pickWhere selects a value for which ok returns true.
func (g *generator) pickWhere(ok func(kind) bool) (int, bool) {
	for range 20 {
		if i := g.pick(); ok(g.kinds[i]) {
			return i, true
		}
	}
	return 0, false
}

func (g *generator) annotate() (instruction, bool) {
	x := g.pick()
	note := g.annotation(g.kinds[x].dims)
	return instruction{op: "annotate", in: []int{x}, note: note, kinds: []kind{g.kinds[x]}},
		note.Kind() != logical.KindNone
}

func (g *generator) makeRegion() (instruction, bool) {
	inner := &generator{rng: g.rng, p: g.p, region: true, on: true}
	in := instruction{op: "region", ints: []int{g.rng.IntN(g.p.devices)}, body: &block{}}
	for range 1 + g.rng.IntN(3) {
		x := g.pick()
		in.in, inner.kinds = append(in.in, x), append(inner.kinds, g.kinds[x])
	}
	for _, v := range g.p.vars {
		inner.kinds = append(inner.kinds, v.kind)
	}
	inner.grow(g.rng.IntN(6))
	in.body.code = inner.code
	for range 1 + g.rng.IntN(3) {
		out := inner.pick()
		in.body.outs = append(in.body.outs, out)
		in.kinds = append(in.kinds, inner.kinds[out])
	}
	return in, true
}

func (g *generator) collective() (instruction, bool) {
	x, ok := g.pickWhere(func(k kind) bool { return k.dtype != dtypes.Bool })
	if !ok {
		return instruction{}, false
	}
	k, r := g.kinds[x], g.p.replicas
	k.dims, k.mirrored, k.exact = slices.Clone(k.dims), true, k.exact && !k.dtype.IsFloat()
	axis := 0
	if len(k.dims) > 0 {
		axis = g.rng.IntN(len(k.dims))
	}
	switch g.rng.IntN(5) {
	case 0:
		if len(k.dims) > 0 && k.size()*r <= 2048 {
			k.exact = g.kinds[x].exact
			k.dims[axis] *= r
			return instruction{op: "gather_replicas", in: []int{x}, ints: []int{axis}, kinds: []kind{k}}, true
		}
	case 1:
		if k.size() > 0 && len(k.dims) > 0 && k.dims[axis]%r == 0 {
			k.dims[axis] /= r
			k.mirrored = false
			return instruction{op: "reduce_scatter", in: []int{x}, ints: []int{axis}, kinds: []kind{k}}, true
		}
	case 2:
		return instruction{op: "replica_id", kinds: []kind{{dtype: dtypes.Int32, exact: true}}}, true
	case 3:
		if k.size() == 0 {
			return instruction{}, false
		}
		k.exact = g.kinds[x].exact && !k.coarse
		return instruction{op: "broadcast_replica", in: []int{x}, kinds: []kind{k}}, true
	}
	if k.dtype.IsFloat() {
		return instruction{op: "mean_replicas", in: []int{x}, kinds: []kind{k}}, true
	}
	return instruction{op: "sum_replicas", in: []int{x}, kinds: []kind{k}}, true
}

// closure generates a loop or a branch. Its body may read any value of the enclosing function.
func (g *generator) closure() (instruction, bool) {
	inner := &generator{rng: g.rng, p: g.p, region: true, depth: g.depth + 1, kinds: slices.Clone(g.kinds),
		assign: g.assign, on: g.on}
	if g.chance(50) {
		pred, ok := g.pickWhere(func(k kind) bool { return k.dtype == dtypes.Bool && len(k.dims) == 0 && k.exact })
		if !ok {
			return instruction{}, false
		}
		x := g.pick()
		inner.grow(1 + g.rng.IntN(3))
		// The other branch returns a value of the same kind.
		out := inner.pick()
		k := inner.kinds[out]
		k.mirrored = k.mirrored && g.kinds[pred].mirrored && g.kinds[x].mirrored
		return instruction{op: "if", in: []int{pred}, body: &block{code: inner.code, outs: []int{out}}, kinds: []kind{k}},
			true
	}
	x := g.pick()
	k := g.kinds[x]
	k.exact = k.exact && !k.dtype.IsFloat()
	k.mirrored = false
	inner.kinds = append(inner.kinds, k)
	inner.grow(1 + g.rng.IntN(3))
	for j := range slices.Backward(inner.kinds) {
		if same(inner.kinds[j], k) && (k.dtype.IsFloat() || inner.kinds[j].exact) {
			k.coarse = k.coarse || inner.kinds[j].coarse
			return instruction{op: "while", in: []int{x}, ints: []int{1 + g.rng.IntN(3)},
				body: &block{code: inner.code, outs: []int{j}}, kinds: []kind{k}}, true
		}
	}
	return instruction{}, false
}

func same(a, b kind) bool { return a.dtype == b.dtype && slices.Equal(a.dims, b.dims) }
