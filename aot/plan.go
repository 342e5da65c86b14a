package aot

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/probe"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func (f *Flags) addPlanFlags(flags *flag.FlagSet) {
	flags.StringVar(&f.Plan, "plan", "",
		"with -topology: search the best plan for the step on one of the slices, and write it to this `file`, for -by")
	flags.Func("try", "with -plan: values to try for a flag of the program, for logical or for shard-state, as in -try "+
		"remat=none,full; may be repeated", func(text string) error {
		name, values, ok := strings.Cut(text, "=")
		if !ok || name == "" || values == "" {
			return errors.New("write a flag and its values, as in remat=none,full")
		}
		if f.tryValues == nil {
			f.tryValues = map[string][]string{}
		}
		f.tryValues[name] = append(f.tryValues[name], strings.Split(values, ",")...)
		return nil
	})
	flags.Func("by",
		"run or compile by the plan in this `file`: it sets -replicas, -logical and the flags that the search tried",
		func(path string) error {
			p, err := plan.Read(path)
			if err != nil {
				return err
			}
			f.planToFollow = &p
			settings := map[string]string{"replicas": strconv.Itoa(p.Replicas), "logical": strconv.Itoa(p.Logical())}
			maps.Copy(settings, p.Settings)
			return f.setFlags(settings)
		})
}

func (f *Flags) setFlags(settings map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if err := f.flagSet.Set(name, settings[name]); err != nil {
			return &errkind.Fault{Op: "plan", Subject: "-" + name, Err: err, Class: errkind.ValueError}
		}
	}
	return nil
}

// ApplyPlan returns opts with the replicas, axes and rules of the plan file that the flag -by
// specifies. Without -by it returns opts unchanged.
func (f *Flags) ApplyPlan(opts strategy.Options) strategy.Options {
	if f.planToFollow != nil {
		opts.Replicas, opts.LogicalDevices, opts.LogicalAxes, opts.Variables = f.planToFollow.Replicas, 0,
			f.planToFollow.Axes, f.planToFollow.Rules
	}
	return opts
}

// checkPlan returns an error if the flags do not describe a valid search.
func (f *Flags) checkPlan() error {
	switch {
	case f.Plan == "" && f.tryValues != nil:
		return ahead.UsageErrorf("plan", "add -plan plan.json", "-try without -plan")
	case f.Plan == "":
		return nil
	case f.Report+f.Save+f.Text != "":
		return ahead.UsageErrorf("plan", "compile by the plan that is found, with -by",
			"-report, -save and -text are of one compilation, and -plan is of many")
	}
	for name := range f.tryValues {
		if name != "logical" && name != "shard-state" && f.flagSet.Lookup(name) == nil {
			return ahead.UsageErrorf("plan", "name a flag of the program", "-try %s: there is no such flag", name)
		}
	}
	for _, topology := range f.topologies() {
		if ahead.PluginKind(topology) != "tpu" {
			return ahead.UsageErrorf("plan", "give a TPU slice such as v5e:2x4",
				"-topology %s: times are predicted for TPUs only", topology)
		}
	}
	return ahead.CheckWritable(f.Plan)
}

// searchSpace returns the search space that the flag -try and the program's rules define.
func (f *Flags) searchSpace(opts strategy.Options) (s plan.Space, err error) {
	s.Settings = map[string][]string{}
	for name, values := range f.tryValues {
		switch name {
		case "logical":
			for _, text := range values {
				n, err := strconv.Atoi(text)
				if err != nil || n < 1 {
					return s, ahead.UsageErrorf("plan", "give numbers from 1", "-try logical=%s", text)
				}
				s.Logical = append(s.Logical, n)
			}
		case "shard-state":
			for _, text := range values {
				state, err := logical.ParseStateSharding(text)
				if err != nil {
					return s, ahead.NewUsageError("plan: -try", err)
				}
				s.States = append(s.States, state)
			}
		default:
			s.Settings[name] = values
		}
	}
	for _, axis := range opts.LogicalAxes {
		s.Axes = append(s.Axes, axis.Name)
	}
	if slices.ContainsFunc(opts.Variables, func(r logical.Rule) bool { return r.State == 0 }) {
		s.Rules = []plan.RuleSet{{Name: "own", Rules: opts.Variables}}
		return s, nil
	}
	if s.Rules, err = plan.KnownRules(s.Axes); err != nil {
		err = ahead.NewUsageError("plan", err)
	}
	return s, err
}

func (r *compileRun) searchPlans(ctx context.Context) (*plan.Result, error) {
	f := r.flags
	space, err := f.searchSpace(r.opts)
	if err != nil {
		return nil, err
	}
	options := f.Search
	options.Progress = r.progressLine.Update
	options.TimeLimit, options.Concurrency = cmp.Or(options.TimeLimit, 10*time.Minute), cmp.Or(options.Concurrency, 2)
	options.Splits = options.Splits || len(space.Rules) > 1
	cache, _ := os.UserCacheDir() // without a cache directory nothing is cached
	build := func(strat *strategy.TPUStrategy, settings map[string]string) (ahead.Step, []any, error) {
		if err := f.setFlags(settings); err != nil {
			return nil, nil, err
		}
		return r.buildStep(strat, "a plan")
	}
	return ahead.Search{Topologies: f.topologies(), Space: space, Options: options, Prices: plan.ListPrices(),
		Worker: f.worker, CacheDir: probe.DefaultCacheDir(cache), StrategyOptions: r.opts, Build: build}.Run(ctx)
}

// printPlan prints the result of a search and writes the plan.
func (r *compileRun) printPlan(result *plan.Result, err error, stdout io.Writer) error {
	if err != nil {
		return err
	}
	if r.flags.JSON {
		err = ahead.WriteJSON(stdout, result)
	} else {
		err = result.WriteText(stdout)
	}
	if err != nil {
		return outputError(err)
	}
	return ahead.WritePlan(r.flags.Plan, result, r.flags.JSON)
}

// buildStep calls build to create the step. It returns an error if build returns no step. target is
// the name of the topology or plan in the error.
func (r *compileRun) buildStep(strat *strategy.TPUStrategy, target string) (Step, []any, error) {
	step, args, err := r.build(strat)
	if err == nil && step == nil {
		err = &errkind.Fault{Op: "building the step for " + target, Reason: "build returned nil",
			Hint: "return a train.Step or a strategy.Function", Class: errkind.ValueError}
	}
	return step, args, err
}
