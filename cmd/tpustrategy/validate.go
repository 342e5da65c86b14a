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

func (validateCmd) Help() string {
	return `Compares predicted times with published measurements on TPUs. Single operations are compiled completely. Training steps of MaxText that the decoder of examples/gpt can express are probed. The table shows every prediction; steps that the decoder cannot express are listed and not counted. The complete list takes half an hour.

Examples:
  tpustrategy validate --row 2,3
  tpustrategy validate --json`
}

// validateRequest is a request to predict the times of published measurements. Rows contains the
// row numbers of these measurements in the table.
type validateRequest struct {
	Plugin, Folder string
	Rows           []int
}

// prediction is a published measurement of a training step or an operation, with its predicted time.
type prediction struct {
	Row       int     `json:"row"`
	Name      string  `json:"name"`
	Slice     string  `json:"slice"`
	Published float64 `json:"published_seconds,omitempty"`
	Predicted float64 `json:"predicted_seconds,omitempty"`
	Step      bool    `json:"step"`
	// Utilization is the published FLOP/s divided by the peak FLOP/s of a chip.
	Utilization float64 `json:"published_utilization,omitempty"`
	// WithoutKernel is the predicted time in seconds if attention is computed without a fused kernel.
	WithoutKernel float64 `json:"predicted_without_kernel_seconds,omitempty"`
	// Bytes is the memory that the step needs on each device according to the compiler. Limit is
	// the memory of a device.
	Bytes int64 `json:"memory_bytes,omitempty"`
	Limit int64 `json:"memory_limit,omitempty"`
	// Missing names the missing feature if the measurement cannot be predicted. Note is a remark.
	// Fitted is true if a constant of the cost model is fitted to the measurement.
	Missing string `json:"lacks,omitempty"`
	Note    string `json:"note,omitempty"`
	Fitted  bool   `json:"fitted"`
	Error   string `json:"error,omitempty"`
}

// relativeError returns the relative error of the prediction.
func (v prediction) relativeError() float64 { return v.Predicted/v.Published - 1 }

func (v prediction) hasPrediction() bool { return v.Predicted > 0 && v.Published > 0 }

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
	answer, err := a.runSearch(ctx, "validating", c.Plugin, c.Cache, func(plugin, folder string) childRequest {
		return childRequest{Validate: &validateRequest{plugin, folder, c.Row}}
	})
	if err != nil {
		return err
	}
	if root.JSON {
		return a.printJSON(answer.Validate)
	}
	return writePredictions(a.stdout, answer.Validate)
}

// writePredictions writes a table of the predictions, their mean errors, and a rank correlation.
func writePredictions(w io.Writer, all []prediction) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "row\twhat\tslice\tpublished\tpredicted\terror\tmemory\tnote")
	for _, v := range all {
		published, predicted, off, memory, note := "-", "-", "-", "", v.Note
		if v.Published > 0 {
			published = units.Seconds(v.Published)
		}
		if v.hasPrediction() {
			predicted, off = units.Seconds(v.Predicted), fmt.Sprintf("%+.1f %%", 100*v.relativeError())
		}
		if v.Bytes > 0 {
			memory = fmt.Sprintf("%s of %s", units.Bytes(v.Bytes), units.Bytes(v.Limit))
		}
		if v.WithoutKernel > 0 {
			note = fmt.Sprintf("%+.1f %% as the decoder runs attention; %s", 100*(v.WithoutKernel/v.Published-1), note)
		}
		if v.Missing != "" {
			note = "not counted, it needs " + v.Missing
		} else if v.Error != "" {
			note = v.Error
		} else if v.Fitted {
			note = strings.TrimPrefix(note+"; a constant is fitted to it", "; ")
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Row, v.Name, v.Slice, published, predicted, off, memory,
			note)
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
			if v.Step == kind.step && v.Fitted == kind.fitted && v.hasPrediction() {
				n, sum = n+1, sum+math.Abs(v.relativeError())
				if math.Abs(v.relativeError()) <= 0.15 {
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

// rankCorrelation returns Spearman's rank correlation between the published and the predicted
// utilization, and the number of steps with a prediction.
func rankCorrelation(all []prediction) (rho float64, n int) {
	rank := func(of func(prediction) float64, v prediction) (rank float64) {
		for _, o := range all {
			if o.hasPrediction() && o.Utilization > 0 && of(o) > of(v) {
				rank++
			}
		}
		return rank
	}
	squares := 0.0
	for _, v := range all {
		if v.hasPrediction() && v.Utilization > 0 {
			n++
			d := rank(func(v prediction) float64 { return v.Utilization },
				v) - rank(func(v prediction) float64 { return v.Utilization * v.Published / v.Predicted }, v)
			squares += d * d
		}
	}
	return 1 - 6*squares/float64(n*(n*n-1)), n
}

// validateInChild predicts the times of published measurements. It is called in a child process.
func validateInChild(ctx context.Context, a *app, r validateRequest) (all []prediction, err error) {
	command := []string{a.executable, "compile-worker"}
	compiler, err := worker.New(worker.Options{Command: command})
	if err != nil {
		return nil, err
	}
	for _, s := range published.Steps() {
		if len(r.Rows) > 0 && !slices.Contains(r.Rows, s.Row) {
			continue
		}
		v := prediction{Row: s.Row, Name: s.Name, Slice: s.Slice, Step: true, Missing: s.Lacks, Note: s.Differs}
		if s.Lacks == "" {
			noteLine("probing row " + fmt.Sprint(s.Row) + ", " + s.Name + " on " + s.Slice)
			v.predictStep(ctx, s, r.Plugin, r.Folder, command)
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
		v := prediction{Row: o.Row, Name: o.Name, Slice: o.Slice, Published: o.Seconds, Note: o.Why, Fitted: o.Fitted}
		v.Predicted, err = predictOperation(ctx, asked, o, r.Plugin)
		if err != nil {
			v.Error = err.Error()
		}
		if all = append(all, v); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return all, nil
}

// attention is the decoder function that a fused kernel computed in the published steps.
const attention = "generate.Cache.Attend"

// newStepSearch returns the model of a published step, and a search for its fastest sharding with
// that model. If kernel is true, attention is computed by a fused kernel. remat and accumulate are
// settings of the search that replace the published settings.
func newStepSearch(s published.Step, kernel bool) (decoder.Config, ahead.Search) {
	c := decoder.Config{Layers: s.Layers, Width: s.Width, Heads: s.Heads, KeyHeads: s.KeyHeads, Hidden: s.Hidden,
		Vocabulary: s.Vocabulary, Sequence: s.Sequence,
		Batch: s.Rows * s.Chips, RotaryBase: 1e4, Epsilon: 1e-6, ComputeOptions: decoder.ComputeOptions{HeadSize: s.HeadSize,
			FlashAttention: kernel, ShardByTokens: s.Model > 1}}
	search := ahead.Search{
		Topologies: []string{s.Slice},
		Space: plan.Space{Logical: []int{s.Model}, States: []logical.StateSharding{logical.ShardParameters},
			Rules: []plan.RuleSet{{Rules: decoder.Rules()}}},
		Options: plan.Options{Compile: -1},
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
			step, err := train.New(strat, model.NewStore(), optimizer.Adam().Done(), c.Loss,
				train.Options{Precision: precision.MixedBFloat16, Accumulate: microbatches})
			return step, []any{c.BatchShape()}, err
		},
	}
	if kernel {
		search.Kernel = attention
	}
	return c, search
}

// predictStep predicts the time of a published step with and without a fused attention kernel.
func (v *prediction) predictStep(ctx context.Context, s published.Step, plugin, folder string, worker []string) {
	for _, kernel := range []bool{true, false} {
		c, search := newStepSearch(s, kernel)
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
			v.WithoutKernel = result.Candidates[0].Probe.Seconds
		}
	}
}

// predictOperation compiles a published operation and returns its predicted time in seconds.
func predictOperation(ctx context.Context, c *probe.Compiler, o published.Operation, plugin string) (float64, error) {
	slice, err := ahead.Describe(ctx, o.Slice, plugin)
	if err != nil {
		return 0, err
	}
	defer slice.Close()
	ids := slices.Concat(slice.Topology().DeviceIDs()...)
	ids = ids[:o.Devices*slice.Info().Slices]
	f, err := c.Compile(ctx, probe.Program{Slice: slice, Program: pjrt.Program{Code: []byte(o.Text), Trusted: true},
		Replicas: 1, Logical: len(ids),
		Options: pjrt.CompileOptions{Partitions: len(ids), DeviceAssignment: [][]int{ids}, SPMD: len(ids) > 1,
			Shardy: len(ids) > 1, Overrides: o.Options}})
	return f.Seconds, err
}
