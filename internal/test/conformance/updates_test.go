package conformance

import (
	"context"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

func updateCase(c *caseRun, g golden, v *env) {
	ctx, name := v.ctx, g.Name
	initial := g.float("initial", 5)
	fresh := func(o strategy.VariableOptions) *strategy.Variable {
		if titleHas(name, "ON_READ", "sync-on-read", "SyncOnRead") {
			o.Synchronization, o.LocalWrites = strategy.OnRead, false
		}
		x := v.variable(c, float32(initial), o)
		if components := g.list("components"); components != nil {
			v.setComponents(c, x, tensorsOf(c, components, "float32"))
		}
		return x
	}
	after := func(x *strategy.Variable, err error) {
		if err != nil {
			c.check(g.Outputs, failed(err))
			return
		}
		c.check(g.Outputs, v.components(c, x))
	}
	add := func(u *eager.UpdateContext, args ...any) (any, error) {
		for _, x := range args {
			var err error
			switch {
			case titleHas(name, "assign_sub"):
				_, err = u.AssignSub(x)
			case titleHas(name, "assign"):
				_, err = u.Assign(x)
			default:
				_, err = u.AssignAdd(x)
			}
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	assign := func(u *eager.UpdateContext, args ...any) (any, error) { return u.Assign(args[0]) }
	switch {
	case strings.Contains(name, "grouped result"):
		x := fresh(strategy.VariableOptions{})
		call, by := "assign", 1.0
		if m := callText.FindStringSubmatch(name); m != nil {
			call, by = m[1], evaluate(c, m[2], 0).(float64)
		}
		out, err := v.e.Update(ctx, x, func(u *eager.UpdateContext, args ...any) (any, error) {
			switch call {
			case "assign_add":
				return u.AssignAdd(args[0])
			case "assign_sub":
				return u.AssignSub(args[0])
			}
			return u.Assign(args[0])
		}, by)
		c.check(g.Outputs, []any{c.either(out, err), v.components(c, x)})
	case strings.Contains(name, "fn sees each component"):
		x := fresh(strategy.VariableOptions{})
		var seen []any
		_, err := v.e.UpdateEach(ctx, x, func(u *eager.UpdateContext, _ ...any) (any, error) {
			id, _ := eager.UpdateReplicaID(u.Context())
			require.Equal(c, u.ReplicaID(), id)
			at := u.Device()[strings.LastIndexByte(u.Device(), '/')+1:]
			component := x.Devices()[u.ReplicaID()]
			require.Equal(c, u.Device(), component, "the component's device")
			if v.p > 1 { // replicas with several logical devices have other device IDs
				at = "device:CPU:" + string(rune('0'+u.ReplicaID()))
			}
			seen = append(seen, []any{at, at, float64(id)})
			return nil, nil
		})
		require.NoError(c, err)
		c.check(g.Outputs, seen)
	case strings.Contains(name, "group=False"):
		// The first update adds 1 to components of 5. A second update changes components to 2.
		x := fresh(strategy.VariableOptions{})
		first, err := v.e.UpdateEach(ctx, x, func(u *eager.UpdateContext, args ...any) (any,
			error) {
			return u.AssignAdd(args[0])
		}, 1.0)
		require.NoError(c, err)
		second, err := v.e.UpdateEach(ctx, x, assign, 2.0)
		require.NoError(c, err)
		c.check(g.Outputs, []any{c.show(first), c.show(second)})
	case strings.HasPrefix(g.text("args"), "PerReplica"):
		a := aggregationOf(g)
		x := fresh(strategy.VariableOptions{Aggregation: a, LocalWrites: true})
		after(x, ignore(v.e.Update(ctx, x, add, v.perReplica(c, v.given(g.text("args")), "float32"))))
	case strings.HasPrefix(g.text("args"), "Mirrored"):
		initial = g.float("initial", 4)
		x := fresh(strategy.VariableOptions{})
		mirrored, keyword, _ := strings.Cut(g.text("args"), ")")
		one, two := 1.0, 2.0
		if m := numbersText.FindString(mirrored); m != "" {
			one = evaluate(c, m, 0).(float64)
		}
		if m := numbersText.FindString(keyword); m != "" {
			two = evaluate(c, m, 0).(float64)
		}
		m, err := v.s.Mirror(ctx, float32(one), noAnnotation)
		require.NoError(c, err)
		args := []any{m, two}
		if strings.TrimSpace(keyword) == "" {
			args = args[:1]
		}
		after(x, ignore(v.e.Update(ctx, x, add, args...)))
	case strings.Contains(name, "other mirrored variable"):
		x, y := fresh(strategy.VariableOptions{}), v.variable(c, float32(2), strategy.VariableOptions{})
		after(x, ignore(v.e.Update(ctx, x, add, y)))
	case strings.Contains(name, "outside the scope"):
		x := fresh(strategy.VariableOptions{})
		after(x, ignore(v.e.Update(ctx, x, assign, 2.0)))
	case strings.Contains(name, "another strategy"):
		x := fresh(strategy.VariableOptions{})
		other, err := eager.Of(v.other(c)).Scope(ctx)
		require.NoError(c, err)
		after(x, ignore(v.e.Update(other, x, assign, 2.0)))
	case strings.Contains(name, "foreign") || strings.Contains(name, "variable of"):
		x, err := v.other(c).NewVariable(ctx, float32(1), strategy.VariableOptions{})
		require.NoError(c, err)
		defer x.Close()
		require.Error(c, ignore(v.e.Update(ctx, x, assign, 2.0)))
	case strings.Contains(name, "replica context"):
		x := fresh(strategy.VariableOptions{LocalWrites: true})
		after(x, ignore(v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			var value any = tensors.FromScalar(float32(rc.ReplicaIDInSyncGroup() + 1))
			if g.has("value") {
				value = tensor(c, python(c, g.text("value"), rc.ReplicaIDInSyncGroup()), dtypes.Float32)
			}
			sum, err := rc.AllReduce(strategy.Sum, value)
			if err != nil {
				return nil, err
			}
			return rc.Update(x, assign, sum)
		})))
	case g.text("grad") != "":
		x := fresh(strategy.VariableOptions{})
		rate := g.float("lr", 0.1)
		after(x, ignore(v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.MergeCall(func(ctx context.Context, args ...any) (any, error) {
				sums, err := v.e.BatchReduceTo(ctx, strategy.Sum, []eager.ReducePair{{Value: args[0], To: eager.To(x)}})
				if err != nil {
					return nil, err
				}
				return v.e.Update(ctx, x, func(u *eager.UpdateContext, args ...any) (any, error) {
					step, err := u.Ops().Mul(args[0], rate)
					if err != nil {
						return nil, err
					}
					return u.AssignSub(step)
				}, sums[0])
			}, replicaValue32(c, g.text("grad"), rc))
		})))
	default:
		c.byName(g, v)
	}
}

func ignore(_ any, err error) error { return err }

func nonSlotCase(c *caseRun, g golden, v *env) {
	ctx, name := v.ctx, g.Name
	devices := v.e.NonSlotDevices()
	times := 0
	var ids []any
	give := func(x float64) eager.UpdateFunc {
		return func(u *eager.UpdateContext, args ...any) (any, error) {
			times++
			ids = append(ids, float64(u.ReplicaID()))
			if len(args) > 0 {
				return args[0], nil
			}
			return u.Ops().Add(tensors.FromScalar(float32(x)), 0.0)
		}
	}
	switch {
	case strings.HasPrefix(name, "non_slot_devices"):
		if v.semantics == strategy.TensorFlowMirrored {
			if v.p > 1 {
				return // other devices than in the case
			}
			c.check(g.Outputs, c.show(devices))
			return
		}
		c.check(g.Outputs, devices[0])
	case strings.Contains(name, "runs once"):
		list, _ := g.Outputs.([]any)
		out, err := v.e.UpdateNonSlot(ctx, devices, give(3))
		got := []any{c.either(out, err), ids}
		if len(list) == 2 {
			if _, ok := list[1].([]any); !ok {
				got[1] = float64(times)
				if m, ok := list[1].(map[string]any); ok || list[1] == nil {
					_ = m
					got[1] = nil
				}
			} else if v.semantics != strategy.TensorFlowMirrored {
				got[1] = []any{nil}
			}
		}
		c.check(g.Outputs, got)
	case strings.Contains(name, "group=False"):
		var args []any
		if text := g.text("args"); strings.HasPrefix(text, "PerReplica") {
			args = []any{v.perReplica(c, v.given(text), "float32")}
		}
		out, err := v.e.UpdateNonSlotEach(ctx, devices, give(4), args...)
		c.check(g.Outputs, c.either(out, err))
	case strings.HasPrefix(g.text("args"), "PerReplica"):
		out, err := v.e.UpdateNonSlot(ctx, devices, give(0), v.perReplica(c, v.given(g.text("args")), "float32"))
		c.check(g.Outputs, c.either(out, err))
	case strings.Contains(name, "replica context"):
		_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return v.e.UpdateNonSlot(rc.Context(), devices, give(1))
		})
		if _, ok := g.Outputs.(string); ok { // the case does not run this
			require.Equal(c, errkind.RuntimeError, errkind.KindOf(err))
			return
		}
		c.check(g.Outputs, failed(err))
	default:
		c.byName(g, v)
	}
}

func colocateCase(c *caseRun, g golden, v *env) {
	scope := v.scope(c)
	w := v.variable(c, float32(1), strategy.VariableOptions{})
	try := func(ctx context.Context, x *strategy.Variable) any {
		in, err := v.e.ColocateVarsWith(ctx, x)
		if err != nil {
			return failed(err)
		}
		y, err := v.s.NewVariable(in, float32(1), strategy.VariableOptions{})
		require.NoError(c, err)
		defer y.Close()
		require.Equal(c, x.Devices(), y.Devices())
		return shortDevices(y.Devices())
	}
	switch {
	case strings.HasPrefix(g.Name, "outside"):
		c.check(g.Outputs, try(v.ctx, w))
	case strings.Contains(g.Name, "scope of another") || strings.Contains(g.Name, "another strategy's scope") ||
		strings.Contains(g.Name, "inside the scope"):
		other, err := eager.Of(v.other(c)).Scope(v.ctx)
		require.NoError(c, err)
		c.check(g.Outputs, try(other, w))
	case strings.Contains(g.Name, "variable of another strategy"):
		x, err := v.other(c).NewVariable(v.ctx, float32(1), strategy.VariableOptions{})
		require.NoError(c, err)
		defer x.Close()
		c.check(g.Outputs, try(scope, x))
	case strings.Contains(g.Name, "tensor") || strings.Contains(g.Name, "non_slot") || strings.Contains(g.Name, "plain"):
		// Other types than variables do not compile, so the test passes nil.
		c.check(g.Outputs, try(scope, nil))
	default:
		got := try(scope, w)
		if _, ok := g.Outputs.([]any); ok && v.p == 1 {
			c.check(g.Outputs, got)
			return
		}
		_, bad := got.(failure)
		require.False(c, bad, "%v", got)
	}
}
