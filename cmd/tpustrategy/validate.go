package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/probe"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/lm/decoder"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report/published"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

type validateCmd struct {
	Row    []int  `help:"Rows of the list of published measurements, such as 2,3. Default: all rows."`
	Cache  string `help:"Folder for results of the compiler, or none. Default: the user's cache directory." type:"localpath"`
	Plugin string `help:"Path of the plugin. Default: the installed plugin." type:"localpath"`
}

// Help is the text under --help.
func (validateCmd) Help() string {
	return `Compares predicted times with published measurements on TPUs. Single operations are compiled completely. Training steps of MaxText that the decoder of examples/gpt can express are probed. The table shows every prediction; steps that the decoder cannot express are listed and not counted. The complete list takes half an hour.

Examples:
  tpustrategy validate --row 2,3
  tpustrategy validate --json`
}

// validateRequest is the request for the predictions of rows.
type validateRequest struct {
	Plugin, Folder string
	Rows           []int
}

// validated is a row with its prediction.
type validated struct {
	Row       int     `json:"row"`
	Name      string  `json:"name"`
	Slice     string  `json:"slice"`
	Published float64 `json:"published_seconds,omitempty"`
	Predicted float64 `json:"predicted_seconds,omitempty"`
	Step      bool    `json:"step"`
	// Utilization is the published utilization, as a share of the chips' peak.
	Utilization float64 `json:"published_utilization,omitempty"`
	// Apart is the predicted time of a step without an attention kernel, as the decoder runs it.
	Apart float64 `json:"predicted_without_kernel_seconds,omitempty"`
	// Bytes is the memory of a device that a step needs according to its probe, and Limit the
	// memory of a device.
	Bytes int64 `json:"memory_bytes,omitempty"`
	Limit int64 `json:"memory_limit,omitempty"`
	// Lacks is the reason why the row is not counted, and Note is a remark. Fitted is true if a
	// constant of the prediction is fitted to the row.
	Lacks  string `json:"lacks,omitempty"`
	Note   string `json:"note,omitempty"`
	Fitted bool   `json:"fitted"`
	Error  string `json:"error,omitempty"`
}

// off returns the error of the prediction relative to the published time.
func (v validated) off() float64 { return v.Predicted/v.Published - 1 }

// counted reports whether the row has a prediction.
func (v validated) counted() bool { return v.Predicted > 0 && v.Published > 0 }

// Run validates.
func (c *validateCmd) Run(ctx context.Context, a *app, root *cli) error {
	var known []int
	for _, s := range published.Steps() {
		known = append(known, s.Row)
	}
	for _, o := range published.Operations() {
		known = append(known, o.Row)
	}
	for _, row := range c.Row {
		if !slices.Contains(known, row) {
			return usageErrorf("validate", "give rows of the published steps, 1 to 20, or operations, 34 to 37", "--row %d", row)
		}
	}
	answer, err := a.search(ctx, "validating", c.Plugin, c.Cache, func(plugin, folder string) childRequest {
		return childRequest{Validate: &validateRequest{plugin, folder, c.Row}}
	})
	if err != nil {
		return err
	}
	if root.JSON {
		return a.printJSON(answer.Validate)
	}
	return writeValidated(a.stdout, answer.Validate)
}

// writeValidated writes the table and the errors of the predictions.
func writeValidated(w io.Writer, all []validated) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "row\twhat\tslice\tpublished\tpredicted\terror\tmemory\tnote")
	for _, v := range all {
		published, predicted, off, memory, note := "-", "-", "-", "", v.Note
		if v.Published > 0 {
			published = units.Seconds(v.Published)
		}
		if v.counted() {
			predicted, off = units.Seconds(v.Predicted), fmt.Sprintf("%+.1f %%", 100*v.off())
		}
		if v.Bytes > 0 {
			memory = fmt.Sprintf("%s of %s", units.Bytes(v.Bytes), units.Bytes(v.Limit))
		}
		if v.Apart > 0 {
			note = fmt.Sprintf("%+.1f %% as the decoder runs attention; %s", 100*(v.Apart/v.Published-1), note)
		}
		if v.Lacks != "" {
			note = "not counted, it needs " + v.Lacks
		} else if v.Error != "" {
			note = v.Error
		} else if v.Fitted {
			note = strings.TrimPrefix(note+"; a constant is fitted to it", "; ")
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Row, v.Name, v.Slice, published, predicted, off, memory, note)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, kind := range []struct {
		what         string
		step, fitted bool
	}{{"operations", false, false}, {"operations to which a constant is fitted", false, true}, {"steps", true, false}} {
		sum, n, within := 0.0, 0, 0
		for _, v := range all {
			if v.Step == kind.step && v.Fitted == kind.fitted && v.counted() {
				n, sum = n+1, sum+math.Abs(v.off())
				if math.Abs(v.off()) <= 0.15 {
					within++
				}
			}
		}
		if n > 0 {
			fmt.Fprintf(w, "%d %s: %.1f %% off on average, %d within 15 %%\n", n, kind.what, 100*sum/float64(n), within)
		}
	}
	if rho, n := rankCorrelation(all); n > 2 {
		fmt.Fprintf(w, "rank correlation of the utilization of %d steps: %.2f\n", n, rho)
	}
	return nil
}

// rankCorrelation returns Spearman's rank correlation of the published and the predicted
// utilization of steps.
func rankCorrelation(all []validated) (rho float64, n int) {
	rank := func(of func(validated) float64, v validated) (rank float64) {
		for _, o := range all {
			if o.counted() && o.Utilization > 0 && of(o) > of(v) {
				rank++
			}
		}
		return rank
	}
	squares := 0.0
	for _, v := range all {
		if v.counted() && v.Utilization > 0 {
			n++
			d := rank(func(v validated) float64 { return v.Utilization }, v) - rank(func(v validated) float64 { return v.Utilization * v.Published / v.Predicted }, v)
			squares += d * d
		}
	}
	return 1 - 6*squares/float64(n*(n*n-1)), n
}

// validate executes a validate request.
func validate(ctx context.Context, a *app, r validateRequest) (all []validated, err error) {
	command := []string{a.executable, "compile-worker"}
	compiler, err := worker.New(worker.Options{Command: command})
	if err != nil {
		return nil, err
	}
	for _, s := range published.Steps() {
		if len(r.Rows) > 0 && !slices.Contains(r.Rows, s.Row) {
			continue
		}
		v := validated{Row: s.Row, Name: s.Name, Slice: s.Slice, Step: true, Lacks: s.Lacks, Note: s.Differs}
		if s.Lacks == "" {
			noteLine("probing row " + fmt.Sprint(s.Row) + ", " + s.Name + " on " + s.Slice)
			v.ofStep(ctx, s, r.Plugin, r.Folder, command)
		}
		if all = append(all, v); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	asked := &probe.Compiler{Worker: compiler, CacheDir: r.Folder}
	for _, o := range published.Operations() {
		if len(r.Rows) > 0 && !slices.Contains(r.Rows, o.Row) {
			continue
		}
		noteLine("compiling row " + fmt.Sprint(o.Row) + ", " + o.Name + " on " + o.Slice)
		v := validated{Row: o.Row, Name: o.Name, Slice: o.Slice, Published: o.Seconds, Note: o.Why, Fitted: o.Fitted}
		v.Predicted, err = predictedOperation(ctx, asked, o, r.Plugin)
		if err != nil {
			v.Error = err.Error()
		}
		if all = append(all, v); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return all, nil
}

// attention is the function of the decoder whose computation was a kernel in the measured steps.
const attention = "generate.Cache.Attend"

// stepSearch is a search for how a published step is best run as the decoder expresses it, with attention
// as a kernel runs it or as the decoder does, and what layers hand on split, as it was too. Settings remat
// and accumulate take the place of the step's.
func stepSearch(s published.Step, kernel bool) (decoder.Config, ahead.Search) {
	c := decoder.Config{Layers: s.Layers, Width: s.Width, Heads: s.Heads, KeyHeads: s.KeyHeads, Hidden: s.Hidden, Vocabulary: s.Vocabulary, Sequence: s.Sequence,
		Batch: s.Rows * s.Chips, RotaryBase: 1e4, Epsilon: 1e-6, ComputeOptions: decoder.ComputeOptions{HeadSize: s.HeadSize, FlashAttention: kernel, ShardByTokens: s.Model > 1}}
	search := ahead.Search{
		Topologies: []string{s.Slice},
		Space:      plan.Space{Logical: []int{s.Model}, States: []logical.StateSharding{logical.ShardParameters}, Rules: []plan.RuleSet{{Rules: decoder.Rules()}}},
		Options:    plan.Options{Compile: -1},
		Build: func(strat *strategy.TPUStrategy, settings map[string]string) (ahead.Step, []any, error) {
			c := c
			var err error
			if c.Remat, err = remat.ParsePolicy(cmp.Or(settings["remat"], s.Remat)); err != nil {
				return nil, nil, err
			}
			microbatches, err := strconv.Atoi(cmp.Or(settings["accumulate"], "1"))
			if err != nil {
				return nil, nil, err
			}
			step, err := train.New(strat, model.NewStore(), optimizer.Adam().Done(), c.Loss, train.Options{Precision: precision.MixedBFloat16, Accumulate: microbatches})
			return step, []any{c.BatchShape()}, err
		},
	}
	if kernel {
		search.Kernel = attention
	}
	return c, search
}

// ofStep probes a published step with and without an attention kernel.
func (v *validated) ofStep(ctx context.Context, s published.Step, plugin, folder string, worker []string) {
	for _, kernel := range []bool{true, false} {
		c, search := stepSearch(s, kernel)
		search.Plugin, search.CacheDir, search.Worker = plugin, folder, worker
		v.Published = s.Seconds(c.Parameters())
		if _, of, err := system.ParseSlices(s.Slice); err == nil {
			v.Utilization = s.TFLOPs * 1e12 / of.Generation().PeakFLOPS
		}
		result, err := search.Run(ctx)
		switch {
		case err != nil:
			v.Error = err.Error()
		case result.Candidates[0].Probe == nil:
			v.Error = string(result.Candidates[0].Verdict) + ": " + result.Candidates[0].Reason
		case kernel:
			f := result.Candidates[0].Probe
			v.Predicted, v.Bytes, v.Limit = f.Seconds, f.Bytes, f.Limit
		default:
			v.Apart = result.Candidates[0].Probe.Seconds
		}
	}
}

// predictedOperation predicts the time of the compiled program of a published operation.
func predictedOperation(ctx context.Context, c *probe.Compiler, o published.Operation, plugin string) (float64, error) {
	slice, err := ahead.Describe(ctx, o.Slice, plugin)
	if err != nil {
		return 0, err
	}
	defer slice.Close()
	ids := slices.Concat(slice.Topology().DeviceIDs()...)
	ids = ids[:o.Devices*slice.Info().Slices]
	f, err := c.Compile(ctx, probe.Program{Slice: slice, Program: pjrt.Program{Code: []byte(o.Text), Trusted: true}, Replicas: 1, Logical: len(ids),
		Options: pjrt.CompileOptions{Partitions: len(ids), DeviceAssignment: [][]int{ids}, SPMD: len(ids) > 1, Shardy: len(ids) > 1, Overrides: o.Options}})
	return f.Seconds, err
}
