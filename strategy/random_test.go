package strategy_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"tpustrategy/logical"
	"tpustrategy/strategy"
	"tpustrategy/tpu/system"
)

var (
	randomPrograms = flag.Int("random.programs", 40, "number of random programs to run")
	randomSeed     = flag.Uint64("random.seed", 1, "seed of the first one")
	randomReduce   = flag.String("random.reduce", "", "numbers of the reductions that are applied first, for programs that end the process")
	randomTrace    = flag.Bool("random.trace", false, "print each seed before its program runs")
)

// TestRandomProgramsAreTheSameOnEveryMesh runs random step functions on R replicas
// of P logical devices, annotated, and on one device with all replicas in one
// graph, annotations and collectives taken out. Results, gradients and variables
// agree after two steps: integers and booleans exactly, float32 and float64 to
// 5e-4 of the tensor's largest element (or of 1), what passed through bfloat16 to
// a tenth.
func TestRandomProgramsAreTheSameOnEveryMesh(t *testing.T) {
	sys := openCPU(t, 8)
	programs := *randomPrograms
	if testing.Short() {
		programs = min(programs, 25)
	}
	for seed := *randomSeed; seed < *randomSeed+uint64(programs); seed++ {
		p := newRandomProgram(seed)
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
		if err := p.differs(sys); err != nil {
			small := p.minimise(func(q *randomProgram) bool { return q.differs(sys) != nil })
			t.Errorf("seed %d: %v\n%s\nsmallest that fails: %v\n%s", seed, err, p, small.differs(sys), small)
		}
	}
}

// outcome is what a program leaves: each replica's results and variables.
type outcome struct{ results, vars [][]*tensors.Tensor }

// differs runs the program both ways and says where they part.
func (p *randomProgram) differs(sys *system.System) error {
	want, err := p.reference(sys)
	if err != nil && strings.Contains(err.Error(), "Unsupported element type for DotThunk") {
		return nil // the plugin cannot run this product, on any mesh
	}
	if err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	got, err := p.distributed(sys)
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

// kinds are those of all values.
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
	w, g := numbers(want), numbers(got)
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

func numbers(t *tensors.Tensor) []float64 {
	var all []float64
	_ = t.ConstFlatData(func(flat any) {
		switch flat := flat.(type) {
		case []float64:
			all = slices.Clone(flat)
		case []float32:
			for _, v := range flat {
				all = append(all, float64(v))
			}
		case []bfloat16.BFloat16:
			for _, v := range flat {
				all = append(all, float64(v.Float32()))
			}
		case []int32:
			for _, v := range flat {
				all = append(all, float64(v))
			}
		case []bool:
			for _, v := range flat {
				n := 0.0
				if v {
					n = 1
				}
				all = append(all, n)
			}
		default:
			panic(fmt.Sprintf("no numbers in %T", flat))
		}
	})
	return all
}

// data are the replicas' values of argument i, the same in every step.
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

// finish traces what comes after the code: the gradients of the loss by the float
// arguments and variables, and the results.
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

// next is a variable's value after the step, or nil: one of the program's values,
// or a step along the mean gradient.
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

// reference runs the program on one device.
func (p *randomProgram) reference(sys *system.System) (out outcome, err error) {
	ctx := context.Background()
	s, err := strategy.New(sys, strategy.Options{Replicas: 1})
	if err != nil {
		return out, err
	}
	defer s.Close()
	store := model.NewStore()
	scope := store.RootScope()
	width := func(v randomTensor) int {
		if v.onRead {
			return p.replicas
		}
		return 1
	}
	name := func(i, r int) string { return fmt.Sprintf("v%d_%d", i, r) }
	for i, v := range p.vars {
		for r := range width(v) {
			if _, err := scope.CreateVariable(name(i, r), p.initial(i)); err != nil {
				return out, err
			}
		}
	}
	var args []any
	for i, a := range p.args {
		data := p.data(i)
		if a.mirrored {
			data = data[:1]
		}
		for _, x := range data {
			args = append(args, x)
		}
	}
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		e := &evaluation{p: p, g: rc.Graph()}
		var first []lanes
		// A replica has its own copy of what is mirrored, with its own gradient.
		copies := func(x *graph.Node) lanes {
			all := make(lanes, p.replicas)
			for r := range all {
				all[r] = copyOf(x)
			}
			return all
		}
		for _, a := range p.args {
			if a.mirrored {
				first, in = append(first, copies(in[0])), in[1:]
			} else {
				first, in = append(first, in[:p.replicas]), in[p.replicas:]
			}
		}
		for i, v := range p.vars {
			var all lanes
			for r := range width(v) {
				all = append(all, scope.GetVariable(name(i, r)).NodeValue(rc.Graph()))
			}
			if !v.onRead {
				all = copies(all[0])
			}
			first, e.vars = append(first, all), append(e.vars, all)
		}
		all := e.run(p.code, first)
		results, gradients := e.finish(first, all)
		for i, v := range p.vars {
			if next := e.next(i, all, gradients); next != nil {
				for r := range width(v) {
					scope.GetVariable(name(i, r)).SetNodeValue(next[r])
				}
			}
		}
		return slices.Concat(results...)
	}, strategy.FunctionOptions{Store: store})
	var last []*strategy.PerReplica
	for range 2 {
		if last, err = f.Run(ctx, args...); err != nil {
			return out, err
		}
	}
	for i := 0; i < len(last); i += p.replicas {
		replicas := make([]*tensors.Tensor, p.replicas)
		for r := range replicas {
			if replicas[r], err = last[i+r].Local(ctx, 0); err != nil {
				return out, err
			}
		}
		out.results = append(out.results, replicas)
	}
	for i, v := range p.vars {
		replicas := make([]*tensors.Tensor, p.replicas)
		for r := range replicas {
			if replicas[r], err = p.variable(ctx, s, store, "/"+name(i, min(r, width(v)-1)), i, 0); err != nil {
				return out, err
			}
		}
		out.vars = append(out.vars, replicas)
	}
	return out, nil
}

// variable is a replica's value of a store's variable, which is its first one if
// no step reads it.
func (p *randomProgram) variable(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, path string, i, r int) (*tensors.Tensor, error) {
	v, ok := s.Variables(store).Lookup(path)
	if !ok {
		return p.initial(i), nil
	}
	return v.Local(ctx, r)
}

// distributed runs the program on its mesh.
func (p *randomProgram) distributed(sys *system.System) (out outcome, err error) {
	ctx := context.Background()
	var rules logical.Rules
	for i, v := range p.vars {
		if v.note.Kind() != logical.None {
			rules = append(rules, logical.Match(fmt.Sprintf("^/?v%d$", i), v.note))
		}
	}
	s, err := strategy.New(sys, strategy.Options{Replicas: p.replicas, LogicalDevices: p.devices, Variables: rules})
	if err != nil {
		return out, err
	}
	defer s.Close()
	store := model.NewStore()
	scope := store.RootScope()
	own := make([]*strategy.Variable, len(p.vars))
	for i, v := range p.vars {
		name := fmt.Sprintf("v%d", i)
		if !v.onRead {
			_, err = scope.CreateVariable(name, p.initial(i))
		} else {
			own[i], err = s.NewVariable(ctx, p.initial(i), strategy.VariableOptions{Name: name, Synchronization: strategy.OnRead})
		}
		if err != nil {
			return out, err
		}
	}
	args, looped, err := p.arguments(ctx, s)
	if err != nil {
		return out, err
	}
	opts := strategy.FunctionOptions{Store: store}
	for _, a := range p.args {
		opts.Arguments = append(opts.Arguments, a.note)
	}
	for _, r := range p.results {
		opts.Results = append(opts.Results, r.note)
	}
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		e := &evaluation{p: p, rc: rc, g: rc.Graph()}
		first := alone(in)
		for i, v := range p.vars {
			node := lanes{nil}
			if v.onRead {
				node[0] = rc.Read(own[i])
			} else {
				node[0] = scope.GetVariable(fmt.Sprintf("v%d", i)).NodeValue(rc.Graph())
			}
			first, e.vars = append(first, node), append(e.vars, node)
		}
		all := e.run(p.code, first)
		results, gradients := e.finish(first, all)
		for i, v := range p.vars {
			next := e.next(i, all, gradients)
			if next == nil {
				continue
			}
			if v.onRead {
				rc.Assign(own[i], next[0])
			} else {
				scope.GetVariable(fmt.Sprintf("v%d", i)).SetNodeValue(next[0])
			}
		}
		return lane(results, 0)
	}, opts)
	runs := 2
	if looped {
		runs = 1
	}
	var last []*strategy.PerReplica
	for range runs {
		if last, err = f.Run(ctx, args...); err != nil {
			return out, err
		}
	}
	for _, value := range last {
		replicas, err := s.LocalResults(ctx, value)
		if err != nil {
			return out, err
		}
		out.results = append(out.results, replicas)
	}
	for i, v := range p.vars {
		replicas := make([]*tensors.Tensor, p.replicas)
		for r := range replicas {
			if v.onRead {
				replicas[r], err = own[i].Local(ctx, r)
			} else {
				replicas[r], err = p.variable(ctx, s, store, fmt.Sprintf("/v%d", i), i, r)
			}
			if err != nil {
				return out, err
			}
		}
		out.vars = append(out.vars, replicas)
	}
	return out, nil
}

// arguments places the arguments: as host values where that is enough, and, in a
// loop, stacked for two steps.
func (p *randomProgram) arguments(ctx context.Context, s *strategy.TPUStrategy) (args []any, looped bool, err error) {
	for i, a := range p.args {
		data := p.data(i)
		each := make([]any, len(data))
		for r, x := range data {
			each[r] = x
		}
		switch {
		case a.mirrored:
			args = append(args, data[0])
		case p.loop && len(a.dims) > 0:
			rows, err := concatenate(data)
			if err != nil {
				return nil, false, err
			}
			v, err := s.StackBatches(ctx, []any{rows, rows}, a.note)
			if err != nil {
				return nil, false, err
			}
			args, looped = append(args, v), true
		default:
			v, err := s.PerReplica(ctx, each, a.note)
			if err != nil {
				return nil, false, err
			}
			args = append(args, v)
		}
	}
	return args, looped, nil
}

// concatenate puts tensors of one shape one after another.
func concatenate(all []*tensors.Tensor) (*tensors.Tensor, error) {
	shape := all[0].Shape().Clone()
	shape.Dimensions[0] *= len(all)
	out := tensors.FromShape(shape)
	var bytes []byte
	for _, t := range all {
		if err := t.ConstBytes(func(data []byte) { bytes = append(bytes, data...) }); err != nil {
			return nil, err
		}
	}
	return out, out.MutableBytes(func(data []byte) { copy(data, bytes) })
}
