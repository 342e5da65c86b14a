package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/fit/progress"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

type planCmd struct {
	Topology   []string      `help:"Slices to choose from, such as v5e:4x4, v5p-16 or \"2x v5e-256\". Several are separated by commas." required:""`
	Example    string        `help:"Plan this example model: gpt, digits, dense or placement." required:""`
	Preset     string        `help:"Size of gpt: tiny, 125m, 1b3 or llama3-8b. Default: tiny."`
	Width      int           `help:"Width of the example's layers. Default: that of the example."`
	Layers     int           `help:"Number of pairs of layers of the example. Default: that of the example."`
	Batch      []int         `help:"Rows of a step over all replicas; a list tries each. Default: those of the example."`
	Logical    []int         `help:"Numbers of logical devices of a replica to try. Default: all that divide the slice."`
	ShardState []string      `help:"State to shard over the replicas, one of ${states}. Default: try each."`
	Remat      []string      `help:"Layers of gpt to recompute in the backward pass: none, products or full. Default: try each."`
	Tokens     bool          `help:"Also try to shard the activations between the layers of gpt by tokens."`
	Accumulate []int         `help:"Numbers of microbatches of a step to try. Default: 1, 2 and 4 for gpt, and 1 for other examples."`
	Precision  []string      `help:"Precisions of the computation to try; see compile." default:"default"`
	Splits     bool          `help:"Also search the split of each group of variables, starting from the best plan."`
	Goal       string        `help:"Goal of the search: fastest, cheapest or largest-batch." enum:"fastest,cheapest,largest-batch" default:"fastest"`
	MaxPrice   float64       `help:"Maximum price of the slice in dollars per hour. Default: no limit."`
	Price      []string      `help:"Price of a chip in dollars per hour instead of the list price, such as v5e=0.60."`
	TimeLimit  time.Duration `help:"Time limit of the probes." default:"10m"`
	Probes     int           `help:"Maximum number of probes. Default: no limit."`
	Compile    int           `help:"Number of the best plans to compile completely." default:"3"`
	Output     string        `short:"o" help:"Write the best plan to this file." type:"localpath"`
	Cache      string        `help:"Folder for results of the compiler, from which an interrupted search continues, or none. Default: the user's cache directory." type:"localpath"`
	Plugin     string        `help:"Path of the plugin. Default: the installed plugin." type:"localpath"`
}

func (planCmd) Help() string {
	return `Searches for the best way to run a step: the slice, the numbers of replicas and logical devices, the state to shard, the layers to recompute, and the number of microbatches. A probe partitions and schedules the program of a plan, which takes seconds, and predicts its time. The best plans are then compiled completely. strategy.New (package plan), programs with package aot (-by) and GOMLX_BACKEND (plan=) read the file with the best plan.

Examples:
  tpustrategy plan --example gpt --preset 1b3 --topology v5e:4x4 --precision bf16 -o plan.json
  tpustrategy plan --example gpt --preset 1b3 --topology v5e:4x4,v5p-16,v6e-8 --precision bf16 --goal cheapest --price v5e=0.6
  tpustrategy plan --example gpt --preset 125m --topology v5e:2x4 --precision bf16 --goal largest-batch --batch 32,64,128

Exit code 4: no plan fits.`
}

// planRequest is a request to search for the fastest or cheapest way to run a training step.
type planRequest struct {
	Plugin, Folder string
	Command        planCmd
}

// planAnswer is the JSON output of the plan command.
type planAnswer struct {
	*plan.Result
	Text string `json:"text"`
}

func (c *planCmd) Run(ctx context.Context, a *app, root *cli) error {
	if err := c.check(); err != nil {
		return err
	}
	answer, err := a.runSearch(ctx, "planning "+c.Example, c.Plugin, c.Cache, func(plugin, folder string) childRequest {
		return childRequest{Plan: &planRequest{plugin, folder, *c}}
	})
	if err != nil {
		return err
	}
	if root.JSON {
		err = a.printJSON(answer.Plan.Result)
	} else {
		_, err = io.WriteString(a.stdout, answer.Plan.Text)
	}
	if err != nil {
		return err
	}
	if err := ahead.WritePlan(c.Output, answer.Plan.Result, root.JSON); err != nil {
		return err
	}
	a.printWrittenFiles(c.Output)
	return nil
}

// check validates the flags and arguments.
func (c *planCmd) check() error {
	for i, topology := range c.Topology {
		c.Topology[i] = strings.TrimSpace(topology)
		if ahead.PluginKind(c.Topology[i]) != "tpu" {
			return usageErrorf("plan", "give a TPU slice such as v5e:2x4",
				"--topology %s: no time is predicted for what is no TPU", topology)
		}
		if err := ahead.CheckTopology("plan", "--topology", c.Topology[i]); err != nil {
			return err
		}
	}
	if err := ahead.CheckWritable(c.Output); err != nil {
		return newUsageError("plan: --output", err)
	}
	for _, text := range c.Price {
		if _, err := plan.ParsePrice(text); err != nil {
			return newUsageError("plan: --price", err)
		}
	}
	m, _, err := findModel(c.Example, modelSize{Preset: c.Preset, Width: c.Width, Layers: c.Layers})
	if err != nil {
		return err
	}
	for flag, given := range map[string]bool{"--remat": len(c.Remat) > 0, "--tokens": c.Tokens} {
		if given && !m.sized {
			return usageErrorf("plan", "leave it out, or give --example gpt", "%s does not take %s", m.name, flag)
		}
	}
	for flag, numbers := range map[string][]int{"batch": c.Batch, "logical": c.Logical, "accumulate": c.Accumulate,
		"compile": {c.Compile + 1}, "probes": {c.Probes + 1}} {
		for _, n := range numbers {
			if n < 1 || n > 1<<20 {
				return usageErrorf("plan", fmt.Sprintf("give numbers from 1 to %d", 1<<20), "--%s %d", flag, n)
			}
		}
	}
	_, err = c.states()
	for _, text := range c.Precision {
		if text != "default" && text != "highest" && err == nil {
			_, err = precision.ParsePolicy(text)
		}
	}
	if err != nil {
		return newUsageError("plan", err)
	}
	if c.MaxPrice < 0 || c.TimeLimit < 0 {
		return usageErrorf("plan", "give 0 or more", "--max-price %g and --time-limit %v", c.MaxPrice, c.TimeLimit)
	}
	return nil
}

func (c *planCmd) states() (all []logical.StateSharding, err error) {
	for _, text := range c.ShardState {
		state, err := logical.ParseStateSharding(text)
		if err != nil {
			return nil, err
		}
		all = append(all, state)
	}
	return all, nil
}

// searchPlanInChild searches for the best way to run a training step. It is called in a child process.
func searchPlanInChild(ctx context.Context, a *app, r planRequest) (*planAnswer, error) {
	c := &r.Command
	m, size, err := findModel(c.Example, modelSize{Preset: c.Preset, Width: c.Width, Layers: c.Layers})
	if err != nil {
		return nil, err
	}
	space := plan.Space{Logical: c.Logical, Rules: []plan.RuleSet{{Name: m.name, Rules: nameAxes(m.rules(2))}},
		Settings: map[string][]string{}}
	if space.States, err = c.states(); err != nil {
		return nil, newUsageError("plan", err)
	}
	if !slices.Equal(c.Precision, []string{"default"}) {
		space.Settings["precision"] = c.Precision
	}
	remat, microbatches := c.Remat, c.Accumulate
	if m.sized && len(remat) == 0 {
		remat = []string{"none", "products", "full"}
	}
	if m.sized && len(microbatches) == 0 {
		microbatches = []int{1, 2, 4}
	}
	for name, values := range map[string][]string{"remat": remat, "accumulate": formatInts(microbatches),
		"batch": formatInts(c.Batch)} {
		if len(values) > 0 {
			space.Settings[name] = values
		}
	}
	if c.Tokens {
		space.Settings["tokens"] = []string{"false", "true"}
	}
	prices := plan.ListPrices()
	for _, text := range c.Price {
		price, err := plan.ParsePrice(text)
		if err != nil {
			return nil, newUsageError("plan", err)
		}
		prices = append(prices, price)
	}
	build := func(strat *strategy.TPUStrategy, settings map[string]string) (ahead.Step, []any, error) {
		number := func(name string, otherwise int) int {
			n, err := strconv.Atoi(settings[name])
			if err != nil {
				return otherwise
			}
			return n
		}
		size := size
		size.Remat, size.Tokens = settings["remat"], settings["tokens"] == "true"
		rows := number("batch", 0)
		if rows == 0 && !m.sized {
			rows = m.size.Batch * defaultReplicas
		}
		var policy precision.Policy
		if text := cmp.Or(settings["precision"], "default"); text != "default" && text != "highest" {
			var err error
			if policy, err = precision.ParsePolicy(text); err != nil {
				return nil, nil, err
			}
		}
		var batch []any
		for _, shape := range m.batch(size, rows) {
			batch = append(batch, shape)
		}
		step, err := m.trainStep(strat, size, policy, number("accumulate", 1))
		return step, batch, err
	}
	with := func(opts *strategy.Options, settings map[string]string) {
		if settings["precision"] == "highest" {
			opts.Precision = lowering.PrecisionHighest
		}
	}
	result, err := ahead.Search{
		Topologies: c.Topology, Plugin: r.Plugin, Space: space, Prices: prices, Worker: []string{a.executable,
			"compile-worker"}, CacheDir: r.Folder, Build: build, SetOptions: with,
		Options: plan.Options{Goal: plan.Goal(c.Goal), Budget: c.MaxPrice, TimeLimit: c.TimeLimit, MaxProbes: c.Probes,
			Splits: c.Splits, Compile: cmp.Or(c.Compile, -1), Concurrency: 2,
			Progress: noteLine},
	}.Run(ctx)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	err = result.WriteText(&text)
	return &planAnswer{result, text.String()}, err
}

// defaultReplicas is the number of replicas whose batches form the global batch of an example
// without a preset.
const defaultReplicas = 16

// nameAxes returns the rules with each number of shards replaced by the name of the logical axis.
// The same rules then apply to any number of logical devices.
func nameAxes(rules logical.Rules) (out logical.Rules) {
	for _, r := range rules {
		if parts := r.Annotation.Parts(); parts != nil {
			dims := make([]string, len(parts))
			for i, n := range parts {
				if n > 1 {
					dims[i] = logical.LogicalAxis
				}
			}
			r.Annotation = logical.SplitOverAxes(dims...)
		}
		out = append(out, r)
	}
	return out
}

func formatInts(numbers []int) (all []string) {
	for _, n := range numbers {
		all = append(all, strconv.Itoa(n))
	}
	return all
}

// runSearch starts a child process for a request that needs a TPU compiler, and shows its progress.
// Compiler results are cached in the folder keep, which can also be "none", or "" for the default
// folder.
func (a *app) runSearch(ctx context.Context, doing, plugin, keep string,
	request func(plugin, folder string) childRequest) (*childAnswer, error) {
	found, err := a.findPlugin("tpu", plugin)
	if err != nil {
		return nil, err
	}
	line := progress.NewLine(a.stderr, progress.Options{Prefix: "tpustrategy: "})
	defer line.Close()
	return a.runChild(ctx, doing, request(found.Path, a.compilerCacheDir(keep)), child.Command{Env: a.quietEnviron(),
		OnNotice: showNotes(line)})
}
