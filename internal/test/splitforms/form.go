package splitforms

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// Form is a random program. It is determined by its seed and the number of parts.
type Form struct {
	Seed uint64
	// Parts is the number of devices over which tensors are split.
	Parts int
	// Split is the number of parts of each dimension of the program's input.
	Split []int

	input []int // the shape of the program's input
}

// New returns the program for a seed. Its input is split into parts.
func New(seed uint64, parts int) Form {
	f := Form{Seed: seed, Parts: parts}
	r := f.random()
	rank := 3 + r.IntN(2) // [batch, steps, channels] or [batch, rows, columns, channels]
	f.Split = make([]int, rank)
	for i := range f.Split {
		f.Split[i] = 1
	}
	first := 1 + r.IntN(rank-2)
	if r.IntN(6) == 0 {
		first = []int{0, rank - 1}[r.IntN(2)]
	}
	f.Split[first] = parts
	if second := r.IntN(rank); parts >= 4 && r.IntN(4) == 0 && second != first {
		f.Split[first], f.Split[second] = parts/2, 2
	}
	f.input = make([]int, rank)
	for i, n := range f.Split {
		switch inner := i > 0 && i < rank-1; {
		case inner && n > 1:
			f.input[i] = n * (1 + r.IntN(min(7, 40/n)))
		case inner:
			f.input[i] = 1 + r.IntN(6)
		default:
			f.input[i] = n * (1 + r.IntN(2))
		}
	}
	return f
}

func (f Form) random() *rand.Rand { return rand.New(rand.NewPCG(f.Seed, uint64(f.Parts))) }

// Environment contains the functions that a program requires from a test.
type Environment struct {
	// Parameter adds an argument to the program.
	Parameter func(dims ...int) *graph.Node
	// Split annotates a value with the number of parts of each dimension. In a program for one
	// device, it returns x unchanged.
	Split func(x *graph.Node, parts ...int) *graph.Node
}

// Build builds the program: one to three operations, a weighted sum of the last result, and the
// gradients of this sum with respect to all arguments. It returns the result, the gradients and a
// description.
func (f Form) Build(e Environment) (results []*graph.Node, description string) {
	r := f.random()
	r.Uint64()
	b := &builder{Environment: e, r: r, parts: f.Parts}
	x := b.parameter(f.input...)
	names := []string{fmt.Sprintf("seed %d: input %v split %v", f.Seed, f.input, f.Split)}
	y := b.Split(x, f.Split...)
	steps, among := 1+r.IntN(3), operations
	if r.IntN(2) == 0 {
		among = layers
	}
	for tries := 0; steps > 0 && tries < 20; tries++ {
		op := among[r.IntN(len(among))]
		if op.constant && steps > 1 {
			continue
		}
		next, name := op.build(b, y)
		if next == nil || next.Shape().Size() == 0 || next.Shape().Size() > 1<<14 {
			continue
		}
		y, steps = next, steps-1
		names = append(names, fmt.Sprintf("%s %s -> %v", op.name, name, y.Shape().Dimensions))
		if axis := r.IntN(y.Rank()); r.IntN(5) == 0 && y.Shape().Dim(axis)%f.Parts == 0 {
			split := slices.Repeat([]int{1}, y.Rank())
			split[axis] = f.Parts
			y = b.Split(y, split...)
			names = append(names, fmt.Sprintf("split %v", split))
		}
		if op.constant {
			return []*graph.Node{y}, strings.Join(names, "; ")
		}
	}
	weights := graph.Iota(y.Graph(), shapes.Make(dtypes.Int32, y.Shape().Size()), 0)
	weights = graph.AddScalar(graph.ModScalar(graph.MulScalar(weights, 7), 5), -2)
	weights = graph.ConvertDType(graph.Reshape(weights, y.Shape().Dimensions...), dtypes.Float32)
	results = []*graph.Node{y}
	// GoMLX has no gradient for some settings of convolutions.
	if err := exceptions.TryCatch[error](func() {
		results = append(results, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, weights)), b.arguments...)...)
	}); err != nil {
		names = append(names, "without gradients")
	}
	return results, strings.Join(names, "; ")
}

// Data returns the elements of argument n, which has size elements.
func (f Form) Data(n, size int) []float32 {
	r := rand.New(rand.NewPCG(f.Seed, uint64(1000+n)))
	data := make([]float32, size)
	for i := range data {
		data[i] = float32(r.IntN(5) - 2)
	}
	return data
}

// Difference returns the largest difference between two results, relative to the largest element of
// want.
func Difference(got, want []float32) float64 {
	var largest, difference float64
	for i := range want {
		largest = max(largest, abs(want[i]))
		d := abs(got[i] - want[i])
		if d != d && (got[i] == got[i] || want[i] == want[i]) {
			d = 1e30 // NaN
		}
		difference = max(difference, d)
	}
	if difference == 0 {
		return 0
	}
	return difference / max(largest, 1e-6)
}

func abs(x float32) float64 { return float64(max(x, -x)) }
