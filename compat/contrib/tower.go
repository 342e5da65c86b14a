package contrib

import (
	"context"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// Arithmetic contains the element-wise operations for a tower's code and for updates. They run on
// the devices. An operand is an [eager.Component], a [Variable], a number or a host tensor. A Go
// number is converted to the dtype of the other operand and may differ between towers. A number
// that the dtype cannot represent is an error; see [eager.ReplicaContext.Add]. All towers must make
// the same calls, because a call waits for all of them.
type Arithmetic struct{ rc *eager.ReplicaContext }

func (a Arithmetic) applyBinary(op string, call func(rc *eager.ReplicaContext, x, y any) (any, error), x, y any) (any,
	error) {
	if a.rc == nil {
		return nil, noDevicesError(op, "compute on the host, or in a strategy's scope")
	}
	return call(a.rc, toOperand(x), toOperand(y))
}

// toOperand converts a Variable to the underlying variable, and returns other operands unchanged.
func toOperand(x any) any {
	if v, ok := x.(*Variable); ok && v != nil {
		return v.inner
	}
	return x
}

// Add returns a + b.
func (a Arithmetic) Add(x, y any) (any, error) {
	return a.applyBinary("add", (*eager.ReplicaContext).Add, x, y)
}

// Sub returns a - b.
func (a Arithmetic) Sub(x, y any) (any, error) {
	return a.applyBinary("sub", (*eager.ReplicaContext).Sub, x, y)
}

// Mul returns a * b.
func (a Arithmetic) Mul(x, y any) (any, error) {
	return a.applyBinary("mul", (*eager.ReplicaContext).Mul, x, y)
}

// Div returns a / b; integers truncate.
func (a Arithmetic) Div(x, y any) (any, error) {
	return a.applyBinary("div", (*eager.ReplicaContext).Div, x, y)
}

// Call runs a compiled function on all towers; see [eager.ReplicaContext.Call].
func (a Arithmetic) Call(f *strategy.Function, args ...any) ([]any, error) {
	if a.rc == nil {
		return nil, noDevicesError("call", "run it in a strategy's scope")
	}
	operands, _ := mapArguments(args, func(x any) (any, error) { return toOperand(x), nil })
	return a.rc.Call(f, operands...)
}

// TowerContext is the context of a tower's code, like TensorFlow's TowerContext. Use it only inside
// the function that receives it, and not inside a merge call.
type TowerContext struct {
	Arithmetic
	d   *DistributionStrategy
	ctx context.Context
	// inMergeCall is set during a merge call of the default strategy.
	inMergeCall bool
}

// TowerFunc is the code of a tower (replica).
type TowerFunc func(tc *TowerContext, args ...any) (any, error)

// MergeFunc is the function of a merge call. It runs once for all towers. ctx has the strategy's
// cross-tower context, and args are the merged arguments of the towers.
type MergeFunc func(ctx context.Context, d *DistributionStrategy, args ...any) (any, error)

type towerKey struct{}

// TowerContextOf returns the TowerContext of ctx. It is TensorFlow's get_tower_context. Outside of
// a scope, it returns the tower of the [Default] strategy. In cross-tower context and in a compiled
// step, it returns false.
func TowerContextOf(ctx context.Context) (*TowerContext, bool) {
	tc, ok := ctx.Value(towerKey{}).(*TowerContext)
	if _, scoped := eager.FromContext(ctx); !scoped {
		if cross, _ := ctx.Value(defaultKey{}).(bool); cross {
			return nil, false
		}
		if !ok {
			tc = defaultTower(ctx)
		}
		return tc, true
	}
	if _, tower := eager.ReplicaContextOf(ctx); !tower || !ok || tc.d == defaultStrategy {
		return nil, false
	}
	return tc, true
}

// TowerID returns the number of the tower, from 0. It is TensorFlow's tower_id.
func (tc *TowerContext) TowerID() int {
	if tc.rc == nil {
		return 0
	}
	return tc.rc.ReplicaIDInSyncGroup()
}

func (tc *TowerContext) NumTowers() int { return tc.d.NumTowers() }

// IsSingleTower reports whether there is one tower: TensorFlow's is_single_tower.
func (tc *TowerContext) IsSingleTower() bool { return tc.d.IsSingleTower() }

// Device returns the name of the tower's device, or "" for the [Default] strategy.
func (tc *TowerContext) Device() string {
	if tc.rc == nil {
		return ""
	}
	return tc.rc.Device()
}

func (tc *TowerContext) DistributionStrategy() *DistributionStrategy { return tc.d }

// Context returns the context of the tower's code, for variables and scopes.
func (tc *TowerContext) Context() context.Context { return tc.ctx }

// MergeCall waits until all towers have called it, and runs fn once, in cross-tower context, with
// the merged arguments of the towers. It is TensorFlow's merge_call. Each tower receives its
// component of the result. If the towers make different calls, each receives an error that matches
// [eager.ErrJoin].
func (tc *TowerContext) MergeCall(fn MergeFunc, args ...any) (any, error) {
	d := tc.d
	inner, err := d.unwrapArguments("merge call", args)
	if err != nil {
		return nil, err
	}
	merge := func(ctx context.Context, args []any) (any, error) {
		result, err := fn(ctx, d, args...)
		if err != nil {
			return nil, err
		}
		return d.unwrapValues("merge call", result)
	}
	if tc.rc == nil {
		if tc.inMergeCall {
			return nil, contextError("merge call", "called in a merge call", "call it in the tower's code")
		}
		tc.inMergeCall = true
		defer func() { tc.inMergeCall = false }()
		return errkind.CatchPanic("contrib: the merge function",
			func() (any, error) { return merge(withDefaultCrossTower(tc.ctx), inner) })
	}
	return tc.rc.MergeCall(func(ctx context.Context, merged ...any) (any, error) {
		args, err := mapArguments(merged, func(x any) (any, error) { return d.wrapValues("merge call", x) })
		if err != nil {
			return nil, err
		}
		return merge(ctx, args)
	}, inner...)
}

// CallForEachTower runs fn once for each tower. It is TensorFlow's call_for_each_tower. PerDevice
// values, Mirrored values and variables in args are replaced by the tower's component; other
// arguments are passed unchanged. A tower writes a variable with the variable's methods and
// [TowerContext.Context]. The towers do not run concurrently: each one runs until it waits for the
// others.
//
// The results are merged. An object that is the same on every tower is returned unchanged. The
// components of one value are returned as that value. Other results are returned as a [PerDevice].
//
// Errors are the errors of fn, a *[errkind.PanicError], [eager.ErrJoin], and a *[strategy.Error] of
// kind AssertionError for results with different structures.
func (d *DistributionStrategy) CallForEachTower(ctx context.Context, fn TowerFunc, args ...any) (any, error) {
	if err := d.requireCrossTower(ctx, "call for each tower"); err != nil {
		return nil, err
	}
	if fn == nil {
		return nil, newFault(errkind.TypeError, "call for each tower", "give the towers' code", "no function")
	}
	inner, err := d.unwrapArguments("call for each tower", args)
	if err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		return errkind.CatchPanic("contrib: the tower's code", func() (any, error) { return fn(defaultTower(ctx), inner...) })
	}
	merged, err := eager.Of(d.strategy).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
		tc := &TowerContext{Arithmetic: Arithmetic{rc}, d: d}
		tc.ctx = context.WithValue(rc.Context(), towerKey{}, tc)
		return d.callTower("call for each tower", tc.TowerID(), args,
			func(args ...any) (any, error) { return fn(tc, args...) })
	}, inner...)
	if err != nil {
		return nil, err
	}
	return d.wrapValues("call for each tower", merged)
}
