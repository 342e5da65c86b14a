package strategy_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

var (
	randomPrograms = flag.Int("random.programs", 40, "number of random programs to run")
	randomSeed     = flag.Uint64("random.seed", 1, "seed of the first one")
	randomReduce   = flag.String("random.reduce", "",
		"numbers of the reductions that are applied first, for programs that end the process")
	randomTrace = flag.Bool("random.trace", false, "print each seed before its program runs")
)

// TestRandomProgramsAreTheSameOnEveryMesh runs random step functions on R replicas of P logical
// devices, with annotations, and on one device with all replicas in one graph, without annotations
// and collectives. Results, gradients and variables must agree after two steps: integers and
// booleans exactly, float32 and float64 up to 5e-4 of the tensor's largest element (or of 1), and
// values that were converted to bfloat16 up to a tenth.
func TestRandomProgramsAreTheSameOnEveryMesh(t *testing.T) {
	runRandomPrograms(t, *randomPrograms, newRandomProgram)
}

// TestRandomProgramsWithAssignedTensorsAreTheSameOnEveryMesh uses programs in which at least a
// third of the values are assigned to a logical device.
func TestRandomProgramsWithAssignedTensorsAreTheSameOnEveryMesh(t *testing.T) {
	runRandomPrograms(t, *randomPrograms, func(seed uint64) *randomProgram {
		return newAssignedProgram(seed,
			30+int(seed%3)*25)
	})
}

// TestRandomProgramsOverNamedAxesAreTheSameOnEveryMesh uses programs on meshes with named axes,
// whose tensors are split over some of the axes.
func TestRandomProgramsOverNamedAxesAreTheSameOnEveryMesh(t *testing.T) {
	runRandomPrograms(t, (*randomPrograms+2)/3, newNamedProgram)
}

func runRandomPrograms(t *testing.T, programs int, make func(seed uint64) *randomProgram) {
	sys, compiler := plugintest.System(t, 8), plugintest.Programs(t)
	if testing.Short() {
		programs = min(programs, 25)
	}
	for seed := *randomSeed; seed < *randomSeed+uint64(programs); seed++ {
		p := make(seed)
		for _, number := range strings.Fields(*randomReduce) {
			i, err := strconv.Atoi(number)
			smaller := p.smaller()
			if err != nil || i >= len(smaller) {
				t.Skipf("%d reductions", len(smaller))
			}
			p = smaller[i]
		}
		if *randomTrace {
			fmt.Fprintf(os.Stderr, "%s\n", p)
		}
		if err := p.differs(sys, compiler); err != nil {
			small := p.minimize(func(q *randomProgram) bool { return q.differs(sys, compiler) != nil })
			t.Errorf("seed %d: %v\n%s\nsmallest that fails: %v\n%s", seed, err, p, small.differs(sys, compiler), small)
		}
	}
}

// outcome has each replica's results and variables after a program.
type outcome struct{ results, vars [][]*tensors.Tensor }

// differs runs the program both ways and describes the differences.
func (p *randomProgram) differs(sys *system.System, compiler pjrt.Compiler) error {
	want, err := p.reference(sys, compiler)
	if err != nil && strings.Contains(err.Error(), "Unsupported element type for DotThunk") {
		return nil // the plugin cannot run this product on any mesh
	}
	if err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	got, err := p.distributed(sys, compiler)
	if err != nil {
		return err
	}
	kinds := p.kinds()
	coarse := slices.ContainsFunc(kinds, func(k kind) bool { return k.coarse })
	for i := range want.results {
		rough := coarse
		if i < len(p.results) {
			rough = kinds[p.results[i].value].coarse
		}
		for r := range p.replicas {
			if err := differ(want.results[i][r], got.results[i][r], rough); err != nil {
				return fmt.Errorf("result %d on replica %d: %w", i, r, err)
			}
		}
	}
	for i := range want.vars {
		for r := range p.replicas {
			if err := differ(want.vars[i][r], got.vars[i][r], coarse); err != nil {
				return fmt.Errorf("variable %d on replica %d: %w", i, r, err)
			}
		}
	}
	return nil
}

// kinds are the kinds of all values.
func (p *randomProgram) kinds() []kind {
	var kinds []kind
	for _, tensor := range slices.Concat(p.args, p.vars) {
		kinds = append(kinds, tensor.kind)
	}
	for _, in := range p.code {
		kinds = append(kinds, in.kinds...)
	}
	return kinds
}

func differ(want, got *tensors.Tensor, coarse bool) error {
	if !want.Shape().Equal(got.Shape()) {
		return fmt.Errorf("shape %s, want %s", got.Shape(), want.Shape())
	}
	w, err := strategytest.Elements(want)
	if err != nil {
		return err
	}
	g, err := strategytest.Elements(got)
	if err != nil {
		return err
	}
	largest := 1.0
	for _, v := range w {
		if a := math.Abs(v); !math.IsInf(a, 0) && !math.IsNaN(a) {
			largest = max(largest, a)
		}
	}
	tolerance := 0.0
	if want.DType().IsFloat() {
		tolerance = 5e-4 * largest
		if coarse {
			tolerance = 0.1 * largest
		}
	}
	for i := range w {
		if w[i] == g[i] || math.IsNaN(w[i]) && math.IsNaN(g[i]) {
			continue
		}
		if !(math.Abs(w[i]-g[i]) <= tolerance) {
			return fmt.Errorf("element %d of %s is %v, want %v", i, want.Shape(), g[i], w[i])
		}
	}
	return nil
}

// data returns the replicas' values of argument i, which are the same in every step.
func (p *randomProgram) data(i int) []*tensors.Tensor {
	all := make([]*tensors.Tensor, p.replicas)
	for r := range all {
		seed := p.seed*1000 + uint64(i)*16
		if !p.args[i].mirrored {
			seed += uint64(r)
		}
		all[r] = randomData(seed, p.args[i].kind)
	}
	return all
}

func (p *randomProgram) initial(i int) *tensors.Tensor {
	return randomData(p.seed*1000+500+uint64(i), p.vars[i].kind)
}

// finish traces the end of the step: the gradients of the loss by the float arguments and
// variables, and the results.
func (e *evaluation) finish(first, all []lanes) (results, gradients []lanes) {
	for _, r := range e.p.results {
		results = append(results, all[r.value])
	}
	var loss *graph.Node
	for _, i := range e.p.loss {
		for _, x := range all[i] {
			if x.Shape().Size() == 0 {
				continue
			}
			term := graph.ConvertDType(graph.ReduceAllMean(graph.Tanh(x)), dtypes.Float32)
			if loss != nil {
				term = graph.Add(loss, term)
			}
			loss = term
		}
	}
	gradients = make([]lanes, len(first))
	if loss == nil {
		return results, gradients
	}
	var leaves []*graph.Node
	for _, v := range first {
		if v[0].DType().IsFloat() {
			leaves = append(leaves, v...)
		}
	}
	if len(leaves) == 0 {
		return results, gradients
	}
	by := graph.Gradient(loss, leaves...)
	for i, v := range first {
		if v[0].DType().IsFloat() {
			gradients[i], by = by[:len(v)], by[len(v):]
			results = append(results, gradients[i])
		}
	}
	return results, gradients
}

// next returns a variable's value after the step, or nil: one of the program's values, or an update
// along the mean gradient.
func (e *evaluation) next(i int, all, gradients []lanes) lanes {
	for _, u := range e.p.updates {
		if u.variable == i {
			return all[u.value]
		}
	}
	gradient := gradients[len(e.p.args)+i]
	if gradient == nil {
		return nil
	}
	mean := gradient
	if !e.p.vars[i].onRead {
		mean = e.collective(instruction{op: "mean_replicas"}, []lanes{gradient})
	}
	value := make(lanes, len(mean))
	for l := range mean {
		value[l] = graph.Sub(e.vars[i][l], graph.MulScalar(mean[l], 0.1))
	}
	return value
}
