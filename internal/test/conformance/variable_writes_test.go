package conformance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

type write struct {
	cross   func(x *strategy.Variable, value any) error
	replica func(rc *eager.ReplicaContext, x *strategy.Variable, value any) (any, error)
}

func (v *env) writes() map[string]write {
	return map[string]write{
		"assign": {func(x *strategy.Variable, value any) error { return x.Assign(v.ctx, value) },
			func(rc *eager.ReplicaContext, x *strategy.Variable, value any) (any, error) {
				return rc.Assign(x, value)
			}},
		"assign_add": {func(x *strategy.Variable, value any) error { return x.AssignAdd(v.ctx, value) },
			func(rc *eager.ReplicaContext, x *strategy.Variable, value any) (any, error) {
				return rc.AssignAdd(x, value)
			}},
		"assign_sub": {func(x *strategy.Variable, value any) error { return x.AssignSub(v.ctx, value) },
			func(rc *eager.ReplicaContext, x *strategy.Variable, value any) (any, error) {
				return rc.AssignSub(x, value)
			}},
	}
}

var mirroredText = regexp.MustCompile(`^mirrored (-?[\d.]+)$`)

func mirroredWriteCase(c *caseRun, g golden, v *env) {
	aggregation := aggregationOf(g)
	initial := g.in("initial")
	if initial == nil {
		initial = json.Number("10.0")
	}
	dtype := dtypeOf(g.text("dtype"), initial)
	value := g.in("value")
	_, values, isDistributed := distributedOf(value)
	fresh := func() *strategy.Variable {
		o := strategy.VariableOptions{Aggregation: aggregation}
		// The variable has local writes if the case writes its components separately.
		if kind, _, ok := distributedOf(value); aggregation == strategy.AggregateNone || ok && kind == "PerReplica" {
			o.LocalWrites = true
		}
		return v.variable(c, tensor(c, initial, dtype), o)
	}
	if aggregation == strategy.AggregateMean && dtype.IsInt() {
		_, err := v.s.NewVariable(v.ctx, int32(1), strategy.VariableOptions{Aggregation: aggregation})
		if _, ok := errorOf(g.Outputs); ok {
			c.check(g.Outputs, failed(err))
			return
		}
		got := map[string]any{}
		for k := range g.outputs() {
			got[k] = failed(err)
		}
		c.check(g.Outputs, got)
		return
	}
	switch {
	case strings.Contains(g.Name, "default strategy"):
		x := v.variable(c, float32(10), strategy.VariableOptions{LocalWrites: true})
		require.NoError(c, x.AssignAdd(v.ctx, 5.0))
		c.check(g.Outputs, v.components(c, x))
		return
	case g.outputs()["cross_read"] != nil:
		x := fresh()
		reads, err := v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if _, err := rc.Assign(x, replicaValue32(c, g.text("value"), rc)); err != nil {
				return nil, err
			}
			return rc.Read(x)
		})
		require.NoError(c, err)
		c.check(g.Outputs, map[string]any{"components": v.components(c, x), "cross_read": c.either(x.Read(v.ctx)),
			"replica_reads": c.show(reads)})
		return
	case strings.Contains(g.Name, "another strategy"):
		x := fresh()
		other, err := eager.Of(v.other(c)).Scope(v.ctx)
		require.NoError(c, err)
		c.check(g.Outputs, failed(x.Assign(other, 1.0)))
		return
	}
	got := map[string]any{}
	replica := strings.HasPrefix(g.Name, "replica context")
	for k := range g.outputs() {
		w, ok := v.writes()[k]
		if !ok {
			c.unmapped("write %q", k)
		}
		x := fresh()
		if replica {
			var shared any
			text, isText := value.(string)
			switch {
			case !isText:
				shared = plainNumber(value)
			case strings.HasPrefix(text, "one tensor object"):
				shared = tensors.FromScalar(float32(evaluate(c, strings.TrimPrefix(text, "one tensor object "), 0).(float64)))
			}
			returned, err := v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				y := shared
				if m := constantText.FindStringSubmatch(text); m != nil {
					y = tensor(c, evaluate(c, m[1], 0), dtype)
				} else if y == nil {
					y = tensor(c, evaluate(c, text, rc.ReplicaIDInSyncGroup()), dtype)
				}
				return w.replica(rc, x, y)
			})
			if err != nil {
				got[k] = failed(err)
				continue
			}
			got[k] = map[string]any{"components": v.components(c, x), "returned": c.show(returned)}
			continue
		}
		var y any
		text, _ := value.(string)
		switch m := mirroredText.FindStringSubmatch(text); {
		case m != nil:
			y = v.variable(c, tensor(c, json.Number(m[1]), dtype), strategy.VariableOptions{})
		case isDistributed && !allEqual(values) || isDistributed && strings.Contains(fmt.Sprint(value), "PerReplica"):
			y = v.perReplica(c, values, strings.ToLower(dtype.String()))
		case isDistributed:
			mirrored, err := v.s.Mirror(v.ctx, tensor(c, values[0], dtype), noAnnotation)
			require.NoError(c, err)
			y = mirrored
		case text == "":
			if y = plainNumber(value); y == nil { // a list of numbers
				y = tensor(c, value, dtype)
			}
		default:
			c.unmapped("value %q", text)
		}
		if err := w.cross(x, y); err != nil {
			got[k] = failed(err)
			continue
		}
		// In TensorFlow, a write returns the new mirrored value of the variable or, with one
		// replica, its only component.
		returned := "Mirrored"
		if v.n == 1 {
			returned = map[strategy.Semantics]string{strategy.TensorFlowMirrored: "_UnreadVariable",
				strategy.TensorFlowTPU: "EagerTensor"}[v.semantics]
		}
		got[k] = map[string]any{"components": v.components(c, x), "returned_type": returned}
	}
	if len(got) == 0 {
		c.byName(g, v)
		return
	}
	c.check(g.Outputs, got)
}

var constantText = regexp.MustCompile(`^tf\.constant\((-?[\d.]+)[^)]*\) made in each replica$`)

func replicaValue32(c *caseRun, text string, rc *eager.ReplicaContext) *tensors.Tensor {
	return tensor(c, evaluate(c, text, rc.ReplicaIDInSyncGroup()), dtypes.Float32)
}

// plainNumber converts x to a Python number, which is the same object on all replicas.
func plainNumber(x any) any {
	switch y := plainValue(x).(type) {
	case int:
		return y
	case float64:
		return y
	}
	return nil
}

var scatterText = regexp.MustCompile(`index (\d+), value (\S+?),`)

func scatterCase(c *caseRun, g golden, v *env) {
	if g.Section == "sync_on_read" || strings.HasPrefix(g.Name, "sync") || strings.Contains(g.Name, "ON_READ") {
		got := map[string]any{}
		_, whole := errorOf(g.Outputs)
		for op := strategy.ScatterAdd; op <= strategy.ScatterMax; op++ {
			x := v.variable(c, []float32{1, 1, 1}, strategy.VariableOptions{Synchronization: strategy.OnRead,
				Aggregation: strategy.AggregateSum})
			got[op.String()] = failed(x.Scatter(v.ctx, op, []int32{1}, []float32{5}))
			_, err := v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return rc.Scatter(op, x, []int32{1}, []float32{5})
			})
			require.Equal(c, errkind.NotImplementedError, errkind.KindOf(err))
			if whole {
				c.check(g.Outputs, got[op.String()])
			}
		}
		if !whole {
			c.check(g.Outputs, got)
		}
		return
	}
	m := scatterText.FindStringSubmatch(g.Name)
	if m == nil {
		c.byName(g, v)
		return
	}
	aggregation := aggregationOf(g)
	index := []int32{int32(evaluate(c, m[1], 0).(float64))}
	got := map[string]any{}
	for op := strategy.ScatterAdd; op <= strategy.ScatterMax; op++ {
		if _, ok := g.outputs()[op.String()]; !ok {
			continue
		}
		x := v.variable(c, tensor(c, g.in("initial"), dtypes.Float32), strategy.VariableOptions{
			Aggregation: aggregation, LocalWrites: aggregation == strategy.AggregateNone})
		var err error
		if strings.Contains(g.Name, "cross-replica") {
			err = x.Scatter(v.ctx, op, index, []float32{float32(evaluate(c, m[2], 0).(float64))})
		} else {
			_, err = v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return rc.Scatter(op, x, index, []float32{float32(evaluate(c, m[2], rc.ReplicaIDInSyncGroup()).(float64))})
			})
		}
		if err != nil {
			got[op.String()] = failed(err)
			continue
		}
		got[op.String()] = v.components(c, x)
	}
	c.check(g.Outputs, got)
}
