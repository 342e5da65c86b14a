package contrib_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/compat/contrib"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// The example of DistributionStrategy.colocate_vars_with: "fn operates on v1 from var1, v2 from
// var2, and v3 from var3".
func TestVariablesAmongArgumentsArriveAsComponents(t *testing.T) {
	onMeshes(t, func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context) {
		variable := func(ctx context.Context, name string, x float32) *contrib.Variable {
			v, err := d.GetVariable(ctx, name, x)
			require.NoError(t, err)
			return v
		}
		v1 := variable(ctx, "var1", 1)
		beside, err := d.ColocateVarsWith(ctx, v1)
		require.NoError(t, err)
		v2, v3 := variable(beside, "var2", 20), variable(beside, "var3", 300)
		triple := d.Strategy().Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.MulScalar(in[0], 3)}
		}, strategy.FunctionOptions{Name: "triple"})

		tower := 0
		fn := func(u *contrib.UpdateContext, args ...any) (any, error) {
			for i, v := range []*contrib.Variable{v2, v3} {
				c, ok := args[i].(eager.Component)
				require.True(t, ok, "a %T", args[i])
				assert.Same(t, v.Variable(), c.Variable())
				assert.Equal(t, tower, c.Replica())
				assert.Equal(t, u.Device(), v.Devices()[c.Replica()], "beside its own component")
			}
			tower++
			sum, err := u.Add(args[0], args[1])
			if err != nil {
				return nil, err
			}
			more, err := u.Call(triple, args[0])
			if err != nil {
				return nil, err
			}
			if sum, err = u.Add(sum, more[0]); err != nil {
				return nil, err
			}
			if _, err := u.AssignAdd(sum); err != nil {
				return nil, err
			}
			return args[1], nil
		}
		out, err := d.Update(ctx, v1, fn, v2, v3)
		require.NoError(t, err)
		assert.Same(t, v3, out, "the components of a variable are the variable")
		for _, got := range list(t, d, ctx, v1) {
			assert.Equal(t, float32(1+20+300+60), got)
		}

		counter := local(t, d, ctx, "sum", "counter", float32(0))
		out, err = d.CallForEachTower(ctx, func(tc *contrib.TowerContext, args ...any) (any, error) {
			nest := args[0].(map[string]any)
			c, mirrored := nest["counter"].(eager.Component), nest["list"].([]any)[0].(eager.Component)
			assert.Equal(t, tc.TowerID(), c.Replica())
			if _, err := counter.AssignAdd(tc.Context(), float32(tc.TowerID()+1)); err != nil {
				return nil, err
			}
			sum, err := tc.Add(c, v2) // now, and a variable of the closure
			if err != nil {
				return nil, err
			}
			return tc.Add(sum, mirrored)
		}, map[string]any{"counter": counter, "list": []any{v3}})
		require.NoError(t, err)
		for i, got := range list(t, d, ctx, out) {
			assert.Equal(t, float32(i+1+20+300), got)
		}
		for name, call := range map[string]func() error{
			"update":          func() error { return second(d.Update(ctx, v1, fn, counter)) },
			"update non-slot": func() error { return second(d.UpdateNonSlot(ctx, d.NonSlotDevices(), fn, []any{counter})) },
		} {
			err := call()
			assert.Equal(t, errkind.TypeError, errkind.KindOf(err), "%s of a tower-local variable: %v", name, err)
		}
		got, err := d.UpdateNonSlot(ctx, d.NonSlotDevices(), func(u *contrib.UpdateContext, args ...any) (any, error) {
			return u.Add(args[0], 1)
		}, v2)
		require.NoError(t, err)
		host, err := got.(eager.Component).Local(ctx)
		require.NoError(t, err)
		assert.Equal(t, float32(21), host.Value())
	})
}

// counter counts the programs that a strategy compiles.
type counter struct{ programs atomic.Int64 }

func (c *counter) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	c.programs.Add(1)
	return client.Compile(ctx, program, opts)
}

// "Combine multiple reduce calls into one for faster execution."
func TestABatchReductionIsOneProgram(t *testing.T) {
	for _, mesh := range [][2]int{{3, 1}, {2, 2}} {
		compiler := &counter{}
		d, ctx := open(t, mesh[0], mesh[1], strategy.Options{Compiler: compiler})
		n := float32(d.NumTowers())
		var pairs []contrib.ReducePair
		var want [][]float32
		for size := range 4 { // of as many shapes
			values := map[string]any{}
			for i, device := range d.WorkerDevices() {
				x := make([]float32, size+1)
				for j := range x {
					x[j] = float32(i + j)
				}
				values[device] = x
			}
			x, err := d.PerDevice(ctx, values)
			require.NoError(t, err)
			sum := make([]float32, size+1)
			for j := range sum {
				sum[j] = n*(n-1)/2 + n*float32(j)
			}
			pairs, want = append(pairs, contrib.ReducePair{Value: x}), append(want, sum)
		}
		pairs[1].To = []eager.Destination{eager.ToDevices(d.WorkerDevices()[0])}
		count := local(t, d, ctx, "mean", "count", []float32{1, 2, 3, 4, 5})
		pairs, want = append(pairs, contrib.ReducePair{Value: count}), append(want, []float32{n, 2 * n, 3 * n, 4 * n, 5 * n})
		before := compiler.programs.Load()
		all, err := d.BatchReduce(ctx, "sum", pairs)
		require.NoError(t, err)
		assert.Equal(t, before+1, compiler.programs.Load(), "%v: programs", mesh)
		for i, m := range all {
			for _, x := range list(t, d, ctx, m)[:1] {
				assert.Equal(t, want[i], x)
			}
		}
		none, err := d.BatchReduce(ctx, "sum", nil)
		require.NoError(t, err)
		assert.Empty(t, none)
	}
}

// Steps 3 and 4 of the page's standard pattern for updating variables.
func TestGradientsAreAppliedAcrossTowers(t *testing.T) {
	onMeshes(t, func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context) {
		n := d.NumTowers()
		var variables []*contrib.Variable
		for _, name := range []string{"w", "b", "unused"} {
			v, err := d.GetVariable(ctx, name, []float32{10, 20})
			require.NoError(t, err)
			variables = append(variables, v)
		}
		step, err := d.GetVariable(ctx, "global_step", tensors.FromScalar(int64(0)))
		require.NoError(t, err)
		gradients, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, _ ...any) (any, error) {
			g, err := tc.Mul([]float32{1, 2}, tc.TowerID()+1)
			if err != nil {
				return nil, err
			}
			h, err := tc.Mul(g, 2)
			return []any{g, h}, err
		})
		require.NoError(t, err)
		g := gradients.([]any)
		descend := func(u *contrib.UpdateContext, args ...any) (any, error) {
			delta, err := u.Mul(args[0], 0.5)
			if err != nil {
				return nil, err
			}
			return u.AssignSub(delta)
		}
		finished := 0
		finish := func(*contrib.UpdateContext, ...any) (any, error) { finished++; return nil, nil }
		pairs := []contrib.Gradient{{g[0], variables[0]}, {g[1], variables[1]}, {nil, variables[2]}}
		for range 2 {
			require.NoError(t, d.DistributedApply(ctx, pairs, descend, finish, step))
		}
		sum := float32(n*(n+1)) / 2 // twice half of it
		for i, want := range [][]float32{{10 - sum, 20 - 2*sum}, {10 - 2*sum, 20 - 4*sum}, {10, 20}} {
			for _, got := range list(t, d, ctx, variables[i]) {
				assert.Equal(t, want, got, variables[i].Name())
			}
		}
		assert.Equal(t, int64(2), list(t, d, ctx, step)[0])
		assert.Equal(t, 2, finished)
		for name, c := range map[string]struct {
			pairs []contrib.Gradient
			kind  errkind.Kind
		}{
			"no gradients":        {pairs[2:], errkind.ValueError},
			"no variable":         {[]contrib.Gradient{{g[0], nil}}, errkind.AssertionError},
			"a gradient of other": {[]contrib.Gradient{pairs[0], {variables[2], variables[1]}}, errkind.AssertionError},
		} {
			err := d.DistributedApply(ctx, c.pairs, descend, nil, nil)
			assert.Equal(t, c.kind, errkind.KindOf(err), "%s: %v", name, err)
		}
		assert.Equal(t, []float32{10 - sum, 20 - 2*sum}, list(t, d, ctx, variables[0])[0], "none or all")
	})
}
