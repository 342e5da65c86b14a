package weights_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/lm/weights"
)

// at calls use with each index of dims and its row-major position.
func at(dims []int, use func(index []int, place int)) {
	index := make([]int, len(dims))
	for place := range size(dims) {
		rest := place
		for d := len(dims) - 1; d >= 0; d-- {
			index[d] = rest % dims[d]
			rest /= dims[d]
		}
		use(index, place)
	}
}

func (a array) value(index []int) float64 {
	place := 0
	for d, i := range index {
		place = place*a.dims[d] + i
	}
	return a.values[place]
}

// stepped applies a step of a rule element by element.
func (a array) stepped(s weights.Step) array {
	if s.Reshape != nil {
		return array{s.Reshape, a.values}
	}
	out := array{dims: slices.Clone(a.dims)}
	if c := s.Slice; c != nil {
		out.dims[c.Dim] = c.End - c.Start
	} else {
		for i, d := range s.Transpose {
			out.dims[i] = a.dims[d]
		}
	}
	out.values = make([]float64, size(out.dims))
	at(out.dims, func(index []int, place int) {
		from := slices.Clone(index)
		if c := s.Slice; c != nil {
			from[c.Dim] += c.Start
		} else {
			for i, d := range s.Transpose {
				from[d] = index[i]
			}
		}
		out.values[place] = a.value(from)
	})
	return out
}

// box returns the elements of a box.
func (a array) box(start, dims []int) (out []float64) {
	at(dims, func(index []int, _ int) {
		from := slices.Clone(index)
		for d := range from {
			from[d] += start[d]
		}
		out = append(out, a.value(from))
	})
	return out
}

// TestAnyStepsAndAnyBoxGiveWhatTheyDoElementByElement reads random boxes of tensors with random
// steps.
func TestAnyStepsAndAnyBoxGiveWhatTheyDoElementByElement(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	pick := func(n int) int { return rng.IntN(n) }
	kinds := []struct {
		file safetensors.DType
		to   dtypes.DType
		add  float64
	}{{safetensors.F32, dtypes.Float32, 0}, {safetensors.BF16, dtypes.Float32, 0}, {safetensors.F64, dtypes.Float32, 0},
		{safetensors.I64, dtypes.Int64, 0}, {safetensors.F32, dtypes.Float64, 1}, {safetensors.BF16, dtypes.BFloat16, 0},
		{safetensors.F32, dtypes.BFloat16, 0}}
	for round := range 400 {
		kind := kinds[pick(len(kinds))]
		dims := []int{}
		for range pick(4) {
			dims = append(dims, []int{1, 2, 3, 4, 6, 8}[pick(6)])
		}
		x := counting(0, dims...)
		for i := range x.values { // bfloat16 has them all
			x.values[i] = float64(int(x.values[i]) % 251)
		}
		// Steps that GoMLX could apply one after the other.
		now := x
		var steps []weights.Step
		for range pick(5) {
			var s weights.Step
			switch n := len(now.dims); pick(3) {
			case 0:
				rest, to := size(now.dims), []int{}
				for range pick(4) {
					d := []int{1, 2, 3, 4}[pick(4)]
					if rest%d == 0 {
						to, rest = append(to, d), rest/d
					}
				}
				s.Reshape = append(to, rest)
			case 1:
				s.Transpose = rng.Perm(n)
			case 2:
				if n == 0 {
					continue
				}
				d := pick(n)
				from := pick(now.dims[d])
				s.Slice = &weights.Slice{Dim: d, Start: from, End: from + 1 + pick(now.dims[d]-from)}
			}
			steps = append(steps, s)
			now = now.stepped(s)
		}
		for i := range steps { // one size of a reshape may be -1
			if r := steps[i].Reshape; r != nil && pick(2) == 0 {
				steps[i].Reshape = append(slices.Clone(r[:len(r)-1]), -1)
			}
		}
		v := weights.Variable{Path: "/v", DType: kind.to, Shape: now.dims}
		// The second target uses the elements that the first target leaves out.
		rules := weights.Rules{{Tensor: "x", To: []weights.Target{{Variable: "/v", Steps: steps, Add: kind.add},
			{Variable: "/rest"}}}}
		name := fmt.Sprintf("round %d: %v %v %+v", round, dims, now.dims, steps)
		f := open(t, tensor{"x", kind.file, x})
		p, err := weights.NewPlan(f.Tensors(), []weights.Variable{v, {Path: "/rest", DType: kind.to, Shape: dims}}, rules,
			weights.PlanOptions{})
		if err != nil { // a step whose result is not a view
			require.ErrorContains(t, err, "step", name)
			require.Regexp(t, "is not at a multiple of|would split rows", err.Error(), name)
			continue
		}
		for i := range now.values {
			if i == 0 {
				now.values = slices.Clone(now.values)
			}
			now.values[i] += kind.add
		}
		for range 4 {
			start, box := make([]int, len(now.dims)), make([]int, len(now.dims))
			for d, n := range now.dims {
				start[d] = pick(n)
				box[d] = 1 + pick(n-start[d])
			}
			require.Equal(t, now.box(start, box), read(t, p, f, v, start, box), "%s: %v %v", name, start, box)
			// Each cell equals a separate box.
			cells, cell := make([]int, len(box)), make([]int, len(box))
			for d, n := range box {
				for cells[d] = 1 + pick(n); n%cells[d] != 0; cells[d]-- {
				}
				cell[d] = n / cells[d]
			}
			into := make([]byte, size(box)*kind.to.Size())
			require.NoError(t, p.ReadCells(context.Background(), f, "/v", start, box, cells, into))
			got := numbers(kind.to, into)
			index := make([]int, len(box))
			for range size(cells) {
				from := make([]int, len(box))
				for d := range from {
					from[d] = start[d] + index[d]*cell[d]
				}
				want := now.box(from, cell)
				require.Equal(t, want, got[:len(want)], "%s: %v %v in %v cells: %v", name, start, box, cells, index)
				got = got[len(want):]
				for d := len(index) - 1; d >= 0; d-- {
					if index[d]++; index[d] < cells[d] {
						break
					}
					index[d] = 0
				}
			}
			require.Empty(t, got)
		}
	}
}

// TestMatricesOfAnySizeAreTurned reads boxes of transposed matrices, alone and as layers of a
// stack, with sizes around the block sizes of the transposition.
func TestMatricesOfAnySizeAreTurned(t *testing.T) {
	for _, kind := range []struct {
		file safetensors.DType
		to   dtypes.DType
	}{{safetensors.F32, dtypes.Float32}, {safetensors.BF16, dtypes.Float32}, {safetensors.BF16, dtypes.BFloat16},
		{safetensors.F32, dtypes.BFloat16}, {safetensors.I64, dtypes.Int64}} {
		for _, dims := range [][]int{{1, 1}, {3, 9}, {4, 8}, {5, 7}, {9, 3}, {12, 16}, {31, 33}, {64, 17}} {
			x := counting(0, dims...)
			for i := range x.values { // bfloat16 has them all
				x.values[i] = float64(i % 251)
			}
			v := weights.Variable{Path: "/v", DType: kind.to, Shape: []int{2, dims[1], dims[0]}}
			var rules weights.Rules
			var all []tensor
			for layer := range 2 {
				name := fmt.Sprint("x", layer)
				all = append(all, tensor{name, kind.file, x})
				rules = append(rules, weights.Rule{Tensor: name, To: []weights.Target{{Variable: "/v", Stack: fmt.Sprint(layer),
					Steps: turned}}})
			}
			f := open(t, all...)
			p, err := weights.NewPlan(f.Tensors(), []weights.Variable{v}, rules, weights.PlanOptions{})
			require.NoError(t, err)
			for skip := range min(dims[0], dims[1], 3) {
				got := read(t, p, f, v, []int{0, skip, 0}, []int{2, dims[1] - skip, dims[0] - skip})
				at := 0
				for range 2 {
					for column := skip; column < dims[1]; column++ {
						for row := range dims[0] - skip {
							require.Equal(t, x.values[row*dims[1]+column], got[at], "%v %v without %d: column %d, row %d", kind, dims, skip,
								column, row)
							at++
						}
					}
				}
			}
		}
	}
}

// TestOnlyTheRangesOfABoxAreRead checks the number of bytes that each kind of sharding reads.
func TestOnlyTheRangesOfABoxAreRead(t *testing.T) {
	const rows, columns = 512, 1024
	for name, c := range map[string]struct {
		steps       []weights.Step
		to          dtypes.DType
		shape       []int
		start, size []int
		bytes       int
	}{
		"rows":    {nil, dtypes.Float32, []int{rows, columns}, []int{128, 0}, []int{256, columns}, 256 * columns * 4},
		"columns": {nil, dtypes.Float32, []int{rows, columns}, []int{0, 256}, []int{rows, 256}, rows * 256 * 4},
		"rows turned": {[]weights.Step{{Transpose: []int{1, 0}}}, dtypes.Float32, []int{columns, rows}, []int{0, 128},
			[]int{columns, 256}, 256 * columns * 4},
		"columns turned": {[]weights.Step{{Transpose: []int{1, 0}}}, dtypes.BFloat16, []int{columns, rows}, []int{256, 0},
			[]int{512, rows}, 512 * rows * 4},
		"heads": {[]weights.Step{{Reshape: []int{8, 64, columns}}, {Transpose: []int{2, 0, 1}}}, dtypes.Float32,
			[]int{columns, 8, 64}, []int{0, 2, 0}, []int{columns, 2, 64}, 2 * 64 * columns * 4},
		"one element": {nil, dtypes.Float32, []int{rows, columns}, []int{7, 9}, []int{1, 1}, 4},
		"gaps are read": {nil, dtypes.Float32, []int{rows, columns}, []int{0, 0}, []int{rows, columns - 64},
			(rows*columns - 64) * 4},
		"wide gaps stand": {nil, dtypes.BFloat16, []int{rows, columns}, []int{0, 0}, []int{rows, columns - 65},
			rows * (columns - 65) * 4},
		"a column": {nil, dtypes.Float32, []int{rows, columns}, []int{0, 5}, []int{rows, 1}, rows * 4},
	} {
		t.Run(name, func(t *testing.T) {
			x := counting(0, rows, columns)
			for i := range x.values {
				x.values[i] = float64(int(x.values[i]) % 250)
			}
			f := open(t, tensor{"x", safetensors.F32, x})
			v := weights.Variable{Path: "/v", DType: c.to, Shape: c.shape}
			p, err := weights.NewPlan(f.Tensors(), []weights.Variable{v},
				weights.Rules{{Tensor: "x", To: []weights.Target{{Variable: "/v", Steps: c.steps}}}}, weights.PlanOptions{})
			require.NoError(t, err)
			before := f.BytesRead()
			got := read(t, p, f, v, c.start, c.size)
			n := int(f.BytesRead() - before)
			if name == "gaps are read" {
				// Without a conversion each row is read directly to its destination.
				c.bytes = rows * (columns - 64) * 4
			}
			assert.Equal(t, c.bytes, n)
			for _, s := range c.steps {
				x = x.stepped(s)
			}
			assert.Equal(t, x.box(c.start, c.size), got)
		})
	}
}

// TestLargeBoxesAreReadByAll reads boxes that require several goroutines and several buffers.
func TestLargeBoxesAreReadByAll(t *testing.T) {
	const rows, columns = 3001, 701
	x := counting(0, rows, columns)
	for i := range x.values {
		x.values[i] = float64(int(x.values[i]) % 251)
	}
	f := open(t, tensor{"x", safetensors.BF16, x}, tensor{"flat", safetensors.F32, counting(0, rows*columns)})
	turned := weights.Variable{Path: "/turned", DType: dtypes.Float32, Shape: []int{columns, rows}}
	flat := weights.Variable{Path: "/flat", DType: dtypes.Float64, Shape: []int{rows * columns}}
	p, err := weights.NewPlan(f.Tensors(), []weights.Variable{turned, flat}, weights.Rules{
		{Tensor: "x", To: []weights.Target{{Variable: "/turned", Steps: []weights.Step{{Transpose: []int{1, 0}}}}}},
		{Tensor: "flat", To: []weights.Target{{Variable: "/flat"}}},
	}, weights.PlanOptions{})
	require.NoError(t, err)
	assert.Equal(t, x.stepped(weights.Step{Transpose: []int{1, 0}}).values, read(t, p, f, turned, []int{0, 0},
		turned.Shape))
	assert.Equal(t, counting(0, rows*columns).values, read(t, p, f, flat, []int{0}, flat.Shape))

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(assert.AnError)
	assert.ErrorIs(t, p.Read(ctx, f, "/turned", []int{0, 0}, turned.Shape, make([]byte, 4*rows*columns)), assert.AnError)
}
