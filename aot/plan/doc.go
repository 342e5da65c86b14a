// Package plan searches for the best way to run a step on a slice of TPUs: the number of replicas
// and of logical devices for each, the axes of the logical devices, the shardings of the variables,
// the training state that is sharded over the replicas, and settings of the program, such as its
// rematerialization.
//
//	space := plan.Space{Slices: []plan.Slice{{Name: "v5e:4x4", Devices: 16}},
//		Rules: []plan.RuleSet{{Name: "own", Rules: rules}}}
//	result, err := plan.Search(ctx, space.Plans(), step, plan.Options{})
//	best := result.Best()
//
// The package contains only data and the search algorithm: [Plan], which can be stored in a file,
// [Space], which generates plans, [Prices], and [Search], which evaluates plans with a [Step].
// Package aot and the command tpustrategy provide implementations of Step that call the compiler.
//
// # The search
//
//  1. Each plan is sketched: its program is lowered, but not compiled. A sketch has the exact
//     memory of the variables and arguments on a device, and a lower bound of the step time: the
//     arithmetic at the peak rate and the memory traffic of the variables. Plans whose variables
//     and arguments do not fit are excluded, and so are plans with the same program as another
//     plan.
//  2. The remaining plans are probed, the most promising first: the compiler partitions, fuses and
//     schedules the program, which takes seconds, and the step time is predicted. Plans whose
//     lower bound is above the best predicted time so far are skipped.
//  3. If Options.Splits is set, the search continues from the best plan with several logical
//     devices: it changes the sharding of one group of variables at a time, as long as the probes
//     become faster.
//  4. The best few plans are compiled completely, which takes minutes. This yields the memory and
//     the predicted time of the final program. If a plan does not fit, the next one is compiled
//     instead.
//
// A [Result] contains the outcome of every plan.
//
// # Using a plan
//
// A plan contains the options of strategy.New:
//
//	p, err := plan.Read("plan.json")
//	opts := strategy.Options{Replicas: p.Replicas, LogicalAxes: p.Axes, Variables: p.Rules}
package plan
