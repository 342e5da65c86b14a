package strategy_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// reference runs the program on one device.
func (p *randomProgram) reference(sys *system.System, compiler pjrt.Compiler) (out outcome, err error) {
	ctx := context.Background()
	s, err := strategy.New(sys, strategy.Options{Compiler: compiler, Replicas: 1})
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
		// A replica has its own copy of a mirrored value, with a separate gradient.
		copies := func(x *graph.Node) lanes {
			all := make(lanes, p.replicas)
			for r := range all {
				all[r] = copyValue(x)
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

// variable returns a replica's value of a store's variable. It is the initial value if no step
// reads the variable.
func (p *randomProgram) variable(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, path string, i,
	r int) (*tensors.Tensor, error) {
	v, ok := s.Variables(store).Lookup(path)
	if !ok {
		return p.initial(i), nil
	}
	return v.Local(ctx, r)
}

// distributed runs the program on its mesh.
func (p *randomProgram) distributed(sys *system.System, compiler pjrt.Compiler) (out outcome, err error) {
	ctx := context.Background()
	var rules logical.Rules
	for i, v := range p.vars {
		if v.note.Kind() != logical.KindNone {
			rules = append(rules, logical.Match(fmt.Sprintf("^/?v%d$", i), v.note))
		}
	}
	s, err := strategy.New(sys, strategy.Options{Compiler: compiler, Replicas: p.replicas, LogicalDevices: p.devices,
		LogicalAxes: p.axes, Variables: rules})
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
			own[i], err = s.NewVariable(ctx, p.initial(i), strategy.VariableOptions{Name: name,
				Synchronization: strategy.OnRead})
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
		if value.Mirrored() { // values that report Mirrored are equal
			for r, x := range replicas {
				if !replicas[0].Equal(x) && fmt.Sprint(x.Value()) != fmt.Sprint(replicas[0].Value()) {
					return out, fmt.Errorf("a mirrored result differs between replicas 0 and %d: %v, %v", r, replicas[0], x)
				}
			}
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

// arguments places the arguments: as host values if that is sufficient, and stacked for two steps
// in a loop.
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

// concatenate concatenates tensors of one shape.
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
