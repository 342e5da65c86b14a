package strategy

import (
	"context"
	"errors"
	"strings"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
	"github.com/tpustrategy/tpustrategy/strategy/internal/number"
)

// Values are reduced element by element in one program, however many there are: each launch costs
// more than a small all-reduce does.

// reduction plans the reduction of one value or variable in such a program.
type reduction struct {
	value    Value
	variable *Variable
	made     bool // the value is closed when it is reduced
	how      reduceHow
	// annotation is the result's.
	annotation logical.Annotation
}

// reduceHow is how a value is reduced; it is part of the program's name.
type reduceHow byte

const (
	reduceCopy  reduceHow = 'c' // the same on all replicas: nothing is to be done
	reduceFirst reduceHow = '1' // replica 0's
	reduceAll   reduceHow = 'r'
)

// planOf says how a distributed value is reduced without axes.
func (s *TPUStrategy) planOf(op ReduceOp, base *distributed) (reduceHow, error) {
	switch {
	case base.steps > 0:
		return 0, fault.New(TypeError, "reduce", "reduce the result of a step", "a value of several steps")
	case s.replicas == 1 && !number.Summable(base.dtype):
		return reduceCopy, nil // there is nothing to add
	}
	if err := number.Check("reduce", base.dtype); err != nil {
		return 0, err
	}
	switch {
	case base.ragged != nil:
		return 0, fault.New(InvalidArgumentError, "reduce", "give an axis to reduce, or pad the batches", "replicas have different shapes %v", base.ragged)
	case s.replicas == 1 && base.perReplica && s.opts.Semantics == TensorFlowMirrored:
		return reduceCopy, nil // of one replica: also an integer stays one
	case !base.perReplica && op == Mean:
		return reduceCopy, nil
	case !base.perReplica && s.opts.Semantics == TensorFlowMirrored:
		return 0, fault.New(AssertionError, "reduce", "use MEAN, or multiply by the number of replicas", "SUM of a mirrored value")
	case op == Mean && base.dtype.IsInt() && s.opts.Semantics == TensorFlowTPU:
		return 0, fault.New(TypeError, "reduce", "convert it to a float, or leave Options.Semantics at its default", "MEAN of dtype %s", base.dtype)
	}
	return reduceAll, nil
}

// layoutOf says how a tensor of some dimensions is split over the logical devices where it goes,
// otherwise being how it is split now.
type layoutOf = func(dims []int, otherwise logical.Annotation) logical.Annotation

// reduceNests reduces the leaves of nests in one program. layouts are the results'.
func (s *TPUStrategy) reduceNests(ctx context.Context, op ReduceOp, call string, nests []any, layouts []layoutOf) ([]any, error) {
	var all []reduction
	results := make([]any, len(nests))
	for i, nest := range nests {
		var err error
		if results[i], err = s.planNest(ctx, op, nest, layouts[i], &all); err != nil {
			return nil, fault.At(i, len(nests), err)
		}
	}
	reduced, err := s.reduceAtOnce(ctx, op, all)
	if err != nil {
		return nil, err
	}
	for i := range results {
		results[i], err = nesting.Map(call, results[i], func(_ string, x any) (any, error) {
			if at, ok := x.(reductionAt); ok {
				return reduced[at], nil
			}
			return x, nil
		})
		if err != nil {
			return nil, errors.Join(err, closeResults(reduced))
		}
	}
	return results, nil
}

// reductionAt stands for a reduced value, by its number.
type reductionAt int

// planNest plans the reduction of a nest's leaves, and puts their numbers in their place.
func (s *TPUStrategy) planNest(ctx context.Context, op ReduceOp, nest any, layout layoutOf, all *[]reduction) (any, error) {
	if err := s.reducesNest(op, nest); err != nil {
		return nil, err
	}
	return nesting.Map("reduce", nest, func(_ string, x any) (any, error) {
		var r reduction
		var err error
		if c, ok := x.(*Component); ok { // one value, for which no replica stands
			if err := s.taking("reduce", c); err != nil {
				return nil, err
			}
			if op == Sum && s.replicas > 1 {
				return nil, fault.NotDistributed("reduce")
			}
			return x, nil
		}
		if v, ok := x.(*Variable); s.lifts(x) && !(ok && v.strategy == s) {
			t, err := s.take(ctx, "reduce", x)
			if err != nil {
				return nil, err
			}
			x, r.made = t.value, t.made
		}
		switch x := x.(type) {
		case Value:
			if err = s.owns(x); err == nil {
				r.value, r.annotation = x, layout(x.base().shape, x.Annotation())
				r.how, err = s.planOf(op, x.base())
			}
		case *Variable:
			if err = s.ownsVariable("reduce", x); err == nil {
				r.variable, r.annotation = x, layout(x.shape, x.annotation)
				if r.how, err = s.planOf(op, x.value()); x.localWrites && op == Mean {
					r.how, err = reduceFirst, nil // a mirrored variable's value is replica 0's
				}
			}
		default:
			return s.reduceHost(op, x)
		}
		if err != nil {
			return nil, err
		}
		*all = append(*all, r)
		return reductionAt(len(*all) - 1), nil
	})
}

// reduceAtOnce runs the program of some reductions and brings the results to where they go.
func (s *TPUStrategy) reduceAtOnce(ctx context.Context, op ReduceOp, all []reduction) ([]any, error) {
	if len(all) == 0 {
		return nil, nil
	}
	c := builtinCall{mirrored: true}
	var name strings.Builder
	name.WriteString("reduce_" + op.String() + "_")
	for _, r := range all {
		if r.variable != nil {
			c.variables = append(c.variables, r.variable)
			name.WriteByte('v')
		} else {
			c.values = append(c.values, r.value)
		}
		name.WriteByte(byte(r.how))
		c.results = append(c.results, r.annotation)
	}
	c.name = name.String()
	plan := c.name[len("reduce_"+op.String()+"_"):] // all that the program keeps
	c.step = func(rc *ReplicaContext, held []*captured, in []*graph.Node) (out []*graph.Node) {
		for i := 0; i < len(plan); i++ {
			var x *graph.Node
			if plan[i] == 'v' {
				x, held = held[0].now, held[1:]
				i++
			} else {
				x, in = in[0], in[1:]
			}
			out = append(out, reduceOne(rc, op, reduceHow(plan[i]), x))
		}
		return out
	}
	values, err := s.call(ctx, c)
	for _, r := range all {
		if r.made {
			err = errors.Join(err, r.value.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	results := make([]any, len(values))
	for i, v := range values {
		results[i] = v
	}
	return results, nil
}

// reduceOne is one value of the program.
func reduceOne(rc *ReplicaContext, op ReduceOp, how reduceHow, x *graph.Node) *graph.Node {
	switch {
	case how == reduceCopy:
		return x
	case how == reduceFirst:
		return rc.first(x)
	case op == Mean && x.DType().IsInt():
		return meanOfIntegers(x, rc.strategy.replicas)
	}
	return reduceOutside(op, x, rc.strategy.replicas)
}

func closeResults(results []any) error {
	var errs []error
	for _, x := range results {
		if v, ok := x.(Value); ok && !isNil(v) {
			errs = append(errs, v.Close())
		}
	}
	return errors.Join(errs...)
}
