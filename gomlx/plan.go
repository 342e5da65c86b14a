package gomlx

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/probe"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

type planSearch struct {
	slice    *system.Slice
	planFile string       // file for the best plan
	options  plan.Options // Progress is set before the search
	space    plan.Space   // without slices
	worker   []string     // the command of a process that compiles
	cacheDir string       // stores compiler results; empty for none
}

// planSpace returns the search space for a program without annotations: the configured size of a
// replica, and the configured rules. Without rules, it contains all known rules.
func (o Options) planSpace() (s plan.Space, err error) {
	if o.devicesPerReplica() > 1 {
		s.Logical = []int{o.devicesPerReplica()}
	}
	for _, axis := range o.Axes {
		s.Axes = append(s.Axes, axis.Name)
	}
	if len(o.Rules) > 0 {
		s.Rules = []plan.RuleSet{{Name: o.RulesName, Rules: o.Rules}}
		return s, nil
	}
	s.Rules, err = plan.KnownRules(s.Axes)
	return s, err
}

func (c *executableState) searchPlan(donated []bool) (*plan.Result, error) {
	p, b := c.backend.ahead.planSearch, c.backend
	compiler, err := worker.New(worker.Options{Command: p.worker})
	if err != nil {
		return nil, err
	}
	options := p.options
	options.Progress = b.ahead.line.Update
	facts := p.slice.Info()
	p.space.Slices = []plan.Slice{{Name: facts.Name, Devices: facts.Devices}}
	result, err := plan.Search(b.runtime.Context, p.space.Plans(),
		&probe.Step{Compiler: &probe.Compiler{Worker: compiler, CacheDir: p.cacheDir},
			Build: func(_ context.Context, p plan.Plan) (probe.BuiltStep, error) {
				return c.lowerPlan(p, donated)
			}}, options)
	if err != nil {
		return nil, err
	}
	best, err := result.Best()
	if err != nil {
		return result, err
	}
	return result, files.Replace(p.planFile, best.Plan.Write)
}

func (c *executableState) lowerPlan(p plan.Plan, donated []bool) (lowered probe.BuiltStep, err error) {
	opts := c.backend.opts
	opts.LogicalDevices, opts.Axes, opts.Rules, opts.RulesName, opts.Log = 0, p.Axes, p.Rules, p.RulesName, nil
	b := &Backend{opts: opts, runtime: c.backend.runtime}
	slice := c.backend.ahead.planSearch.slice
	if b.mesh, b.logical, err = newMeshes(slice.Info().Devices, opts); err != nil {
		return lowered, err
	}
	if err := opts.validate(b.mesh); err != nil {
		return lowered, err
	}
	split := &executableState{backend: b, program: c.program}
	if split.placements, err = b.placeParameters(c.program, false); err != nil {
		return lowered, err
	}
	sig, _ := split.signature(donated)
	m, err := spmd.AssembleGlobal(c.program, sig)
	if err != nil {
		return lowered, err
	}
	lowered.Program = probe.Program{Slice: slice, Program: pjrt.Program{Code: m.Text, Trusted: true},
		Options: b.runtime.Options(1), Replicas: p.Replicas, Logical: p.Logical()}
	for i, name := range c.program.ParameterNames[:numInputs(c.program)] {
		dims := c.program.Parameters[i].Dimensions
		if isVariable(name) {
			lowered.Variables = append(lowered.Variables, plan.Variable{Path: name, Dims: dims})
		} else if len(dims) > 0 {
			lowered.Rows = max(lowered.Rows, dims[0])
		}
	}
	lowered.Report, err = newReport(c.program.Name, m, report.Input{Target: c.backend.ahead.target,
		Program: pjrt.ExecutableRecord{}.Executable()})
	return lowered, err
}

// readPlan reads the sharding plan from the file that the option plan= names. It does nothing if
// the option topology= is set, because the file is then written.
func (c *config) readPlan() error {
	if c.planFile == "" || c.topology != "" {
		return nil
	}
	p, err := plan.Read(c.planFile)
	if err != nil {
		return configError(c.text, "plan", "it cannot be used", "", err)
	}
	c.followedPlan = &p
	return nil
}

// withPlan returns opts with the axes and rules of the plan in the option plan=. It returns an
// error if the plan is for another number of devices.
func (c *config) withPlan(devices int, opts Options) (Options, error) {
	if c.followedPlan == nil {
		return opts, nil
	}
	if n := c.followedPlan.Replicas * c.followedPlan.Logical(); n != devices {
		return opts, configError(c.text, "plan", fmt.Sprintf("it is for the %d devices of %s, and there are %d", n,
			c.followedPlan.Slice, devices), "search for one for these devices", nil)
	}
	opts.LogicalDevices, opts.Axes, opts.Rules, opts.RulesName = 0, c.followedPlan.Axes, c.followedPlan.Rules, c.planFile
	return opts, nil
}

// newPlanSearch returns the state of a plan search, or nil without the option plan=.
func (c *config) newPlanSearch(slice *system.Slice, opts Options) (*planSearch, error) {
	if c.planFile == "" {
		return nil, nil
	}
	p := &planSearch{slice: slice, planFile: c.planFile, worker: opts.Worker,
		options: plan.Options{TimeLimit: 10 * time.Minute, Concurrency: 2, Splits: true}}
	cache, err := os.UserCacheDir()
	if err == nil { // otherwise results are not stored
		p.cacheDir = probe.DefaultCacheDir(cache)
	}
	if p.space, err = opts.planSpace(); err != nil {
		return nil, configError(c.text, "plan", "it cannot be searched for", "", err)
	}
	return p, nil
}
