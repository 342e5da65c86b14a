// Package plan searches for the best way to run a step on a slice of TPUs: how many replicas of how many
// logical devices, along which axes, with which splits of the variables, what of the state of training is
// shared out, and which settings of the program, such as what is computed again.
//
//	space := plan.Space{Slices: []plan.Slice{{Name: "v5e:4x4", Devices: 16}}, Rules: []plan.RuleSet{{Name: "own", Rules: rules}}}
//	result, err := plan.Search(ctx, space.Plans(), step, plan.Options{})
//	best := result.Best()
//
// The package has values only: [Plan], which is a file, [Space], which makes plans, [Prices], and the
// search, which asks a [Step] for what it needs to know. Package aot and the command tpustrategy
// have steps that ask the compiler.
//
// # The search
//
//  1. Each plan is sketched: its program is made, and not compiled. What its variables and arguments take
//     of a device is exact, and no plan is faster than its arithmetic at the peak and the traffic of its
//     variables. A plan too large by that is not gone on with; nor is one whose program is another's.
//  2. The others are probed, those that may be fastest first: the compiler splits, fuses and schedules the
//     program, which takes seconds, and its time is predicted. A plan that cannot be faster than the best
//     so far is left out.
//  3. From the best plan with several logical devices on, the splits of one group of variables after the
//     other are changed, if that is asked for, as long as probes become faster.
//  4. The best few are compiled whole, which takes minutes, and says what they need and take. One that does
//     not fit gives its place to the next.
//
// A [Result] says of each plan what became of it: nothing is left out silently.
//
// # Using a plan
//
// A plan has what strategy.New takes:
//
//	p, err := plan.Read("plan.json")
//	opts := strategy.Options{Replicas: p.Replicas, LogicalAxes: p.Axes, Variables: p.Rules}
package plan
