package conformance

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

var (
	aggregatedText = regexp.MustCompile(`\baggregation|\b(?:NONE|SUM|MEAN|ONLY_FIRST_REPLICA) in run\b`)
	accessText     = regexp.MustCompile(
		`\b(assign_add|assign_sub|assign|scatter_(?:add|sub|mul|div|update|min|max)|read_value|read|value\(\))(?:\W|$)`)
	onReadText    = regexp.MustCompile(`(?i)\bon_read\b|sync.?on.?read`)
	valueDtype    = regexp.MustCompile(`\b(?:of )?an? (\w+) (?:tensor|value)\b`)
	variableDtype = regexp.MustCompile(`variable of (?:dtype )?(\w+)`)
	numberText    = regexp.MustCompile(`\bpython\b[a-z ]*(-?[\d.]+)`)
	constText     = regexp.MustCompile(`tf\.constant\((-?[\d.]+)`)
)

// declared creates the variable that a name describes. If rows is true, the variable has rows, for
// steps that scatter. Otherwise it is a scalar.
func (v *env) declared(c *caseRun, name string, written, rows bool) (*strategy.Variable, error) {
	o := strategy.VariableOptions{Aggregation: aggregationOf(golden{Name: name})}
	if onReadText.MatchString(name) {
		o.Synchronization = strategy.OnRead
	} else { // without an aggregation, TensorFlow writes mirrored components separately
		o.LocalWrites = written && o.Aggregation == strategy.AggregateNone
	}
	d := dtypeIn(valueDtype.ReplaceAllString(name, ""))
	if m := variableDtype.FindStringSubmatch(name); m != nil && dtypeText.MatchString(m[1]) {
		d = dtypeIn(m[1])
	}
	one := json.Number("1")
	var initial any = one
	if rows {
		initial = []any{one, one, one}
	}
	x, err := v.s.NewVariable(v.ctx, tensor(c, initial, d), o)
	if err == nil {
		c.Cleanup(func() { _ = x.Close() })
	}
	return x, err
}

// variables sets x to a step that reads and writes a variable.
func (v *env) variables(c *caseRun, g graphGolden, x *traced) {
	name := g.Name
	var calls []string
	for _, m := range accessText.FindAllStringSubmatch(name, -1) {
		calls = append(calls, m[1])
	}
	switch {
	case len(calls) > 0:
	case writes(g) > 0 || g.Error != nil:
		calls = []string{"assign_add"}
	case g.Counts["ReadVariableOp"] > 0:
		calls = []string{"read"}
	default:
		c.unmapped("step %q", name)
	}
	reads := func(call string) bool { return call == "read" || call == "read_value" || call == "value()" }
	written := slices.ContainsFunc(calls, func(call string) bool { return !reads(call) })
	rows := strings.HasPrefix(calls[0], "scatter_")
	if rows && g.Error != nil && strings.Contains(name, "SPMD") {
		c.skip(reasonScatterSPMD)
	}
	value := v.valueIn(c, g)
	owner := *v
	if strings.Contains(name, "variable of another strategy") {
		owner.s = v.other(c)
	}
	n := 1
	if strings.Contains(name, "two variables") {
		n = 2
	}
	for range n {
		y, err := owner.declared(c, name, written, rows)
		x.variables, x.err = append(x.variables, y), err
	}
	access := func(rc *strategy.ReplicaContext, on *strategy.Variable) *graph.Node {
		var y *graph.Node
		for i, call := range calls {
			given := func() any {
				if i > 0 {
					return graph.MulScalar(rc.Read(on), 2)
				}
				return value(rc)
			}
			switch {
			case reads(call):
				y = graph.AddScalar(rc.Read(on), 1)
			case call == "assign":
				y = rc.Assign(on, given())
			case call == "assign_add":
				y = rc.AssignAdd(on, given())
			case call == "assign_sub":
				y = rc.AssignSub(on, given())
			default:
				for op := strategy.ScatterAdd; op <= strategy.ScatterMax; op++ {
					if op.String() == call {
						y = rc.Scatter(op, on, graph.Const(rc.Graph(), []int32{1}), graph.Const(rc.Graph(), []float32{5}))
					}
				}
			}
		}
		return y
	}
	x.step = func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		var results []*graph.Node
		for _, on := range x.variables {
			results = append(results, access(rc, on))
		}
		return results
	}
}

// across checks a write in cross-replica context, which a step does not have. The write must change
// all components.
func (v *env) across(c *caseRun, name string) {
	x, err := v.declared(c, name, false, false)
	require.NoError(c, err)
	if strings.Contains(name, "update") {
		_, err = v.e.Update(v.ctx, x, func(u *eager.UpdateContext, _ ...any) (any, error) {
			return u.Assign(tensor(c, 2.0, x.Shape().DType))
		})
	} else {
		err = v.writes()[accessText.FindStringSubmatch(name)[1]].cross(x, 2.0)
	}
	require.NoError(c, err)
	require.True(c, allEqual(v.components(c, x)))
}

// valueIn returns the value that a step writes to a variable: a Python number, a constant, or a
// value of the replica.
func (v *env) valueIn(c *caseRun, g graphGolden) func(rc *strategy.ReplicaContext) any {
	name := g.Name
	d := dtypeIn(name)
	if m := valueDtype.FindStringSubmatch(name); m != nil && dtypeText.MatchString(m[1]) {
		d = dtypeIn(m[1])
	}
	if m := constText.FindStringSubmatch(name); m != nil {
		number := evaluate(c, m[1], 0).(float64)
		return func(rc *strategy.ReplicaContext) any { return graph.Scalar(rc.Graph(), d, number) }
	}
	if m := numberText.FindStringSubmatch(name); m != nil {
		number := evaluate(c, m[1], 0).(float64)
		if number == 0 && g.Error != nil && g.Error.Type == "AttributeError" {
			c.skip(reasonZero)
		}
		return func(*strategy.ReplicaContext) any {
			if !strings.Contains(m[1], ".") {
				return int(number)
			}
			return number
		}
	}
	if strings.Contains(name, "another shape") || strings.Contains(name, "wrong shape") {
		return func(rc *strategy.ReplicaContext) any {
			return graph.ConstTensor(rc.Graph(), tensors.FromValue([]float32{1, 2}))
		}
	}
	return func(rc *strategy.ReplicaContext) any {
		return graph.AddScalar(graph.ConvertDType(rc.ReplicaIDInSyncGroup(), d), 1)
	}
}
