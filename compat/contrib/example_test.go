package contrib_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/tpustrategy/tpustrategy/compat/contrib"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// fourTowers opens a strategy for the examples.
func fourTowers(ctx context.Context) (d *contrib.DistributionStrategy, scope context.Context, closeAll func()) {
	sys, err := system.Open(ctx, system.Options{CPUDevices: 4})
	check(err)
	strat, err := strategy.New(sys, strategy.Options{Replicas: 4})
	check(err)
	d = contrib.New(strat)
	scope, err = d.Scope(ctx)
	check(err)
	return d, scope, func() {
		check(strat.Close())
		check(sys.Close())
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](x T, err error) T {
	check(err)
	return x
}

// numbers copies a value of each tower to the host.
func numbers(ctx context.Context, d *contrib.DistributionStrategy, value any) (all []any) {
	for _, c := range must(d.Unwrap(ctx, value)) {
		all = append(all, must(c.(eager.Component).Local(ctx)).Value())
	}
	return all
}

// Each tower adds its number to three; a merge call adds up all of them.
func Example() {
	d, ctx, done := fourTowers(context.Background())
	defer done()

	// Called once, in cross-tower context.
	mergeFn := func(ctx context.Context, d *contrib.DistributionStrategy, args ...any) (any, error) {
		return d.Reduce(ctx, "sum", args[0])
	}
	// Called once for each tower.
	fn := func(tc *contrib.TowerContext, args ...any) (any, error) {
		v, err := tc.Add(args[0], tc.TowerID())
		if err != nil {
			return nil, err
		}
		s, err := tc.MergeCall(mergeFn, v)
		if err != nil {
			return nil, err
		}
		return tc.Add(s, v)
	}
	fmt.Println(numbers(ctx, d, must(d.CallForEachTower(ctx, fn, int32(3)))))
	// Output: [21 22 23 24]
}

// A metric: each tower counts for itself, and a fetch adds the counts.
func ExampleDistributionStrategy_TowerLocalVarScope() {
	d, ctx, done := fourTowers(context.Background())
	defer done()

	local, err := d.TowerLocalVarScope(ctx, "sum")
	check(err)
	seen := must(d.GetVariable(local, "examples_seen", float32(0)))
	_, err = d.CallForEachTower(ctx, func(tc *contrib.TowerContext, _ ...any) (any, error) {
		return seen.AssignAdd(tc.Context(), float32(tc.TowerID()))
	})
	check(err)
	fmt.Println(numbers(ctx, d, seen))
	fmt.Println(must(d.Fetch(ctx, seen, contrib.FetchOptions{})).Value())
	// Output:
	// [0 1 2 3]
	// 6
}

// A mirrored variable is written in an update, from a reduced value.
func ExampleDistributionStrategy_Update() {
	d, ctx, done := fourTowers(context.Background())
	defer done()

	w := must(d.GetVariable(ctx, "w", float32(1)))
	gradients := must(d.CallForEachTower(ctx, func(tc *contrib.TowerContext, _ ...any) (any, error) {
		return tc.Mul(float32(0.5), tc.TowerID())
	}))
	total := must(d.Reduce(ctx, "sum", gradients, contrib.To(w)))
	_, err := d.Update(ctx, w, func(u *contrib.UpdateContext, args ...any) (any, error) {
		return u.AssignSub(args[0])
	}, total)
	check(err)
	fmt.Println(numbers(ctx, d, w))

	_, err = w.Assign(ctx, 7)
	fmt.Println(err)
	// Output:
	// [-2 -2 -2 -2]
	// strategy: assign "w": a mirrored variable outside an update; use DistributionStrategy.Update to modify it
}

// Each tower takes an element; the last two of ten, too few for four, are dropped.
func ExampleDistributionStrategy_DistributeDataset() {
	d, ctx, done := fourTowers(context.Background())
	defer done()

	distributed := must(d.DistributeDataset(ctx, func() (input.Dataset, error) { return input.Range(10), nil }))
	iterator := must(distributed.MakeOneShotIterator(ctx))
	defer iterator.Close()
	for {
		next, err := iterator.GetNext(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		check(err)
		fmt.Println(numbers(ctx, d, next))
	}
	// Output:
	// [0 1 2 3]
	// [4 5 6 7]
}
