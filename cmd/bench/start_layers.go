package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// startParts are the parts of a start, in order: each begins where the one before it ends.
var startParts = []string{"process", "open", "tracing", "lowering", "program", "first loss"}

// startPart is the time of a part, and the processor's for all threads of the process.
type startPart struct{ Wall, CPU time.Duration }

// startLayers returns the benchmark of a process from its start to the first loss of a decoder with
// 4 layers of width 256, one after another in the text or in a loop, whose compiled programs are in
// a cache.
func startLayers(replicas, logicalDevices int, loop bool) func(ctx context.Context, devices int) (row, error) {
	return func(ctx context.Context, _ int) (row, error) {
		dir, err := os.MkdirTemp("", "bench-cache-")
		if err != nil {
			return row{}, err
		}
		defer os.RemoveAll(dir)
		self, err := os.Executable()
		if err != nil {
			return row{}, err
		}
		var times, cpu []time.Duration
		parts, cpuParts := make([][]time.Duration, len(startParts)), make([][]time.Duration, len(startParts))
		for i := range rounds(12) {
			start := time.Now()
			cmd := exec.CommandContext(ctx, self, "-child", fmt.Sprintf("layers=%dx%d,%d,%g,%t,%s", replicas, logicalDevices, start.UnixNano(), effort, loop, dir))
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				return row{}, &errkind.Fault{Op: "start", Reason: "the child process failed", Err: err, Hint: "see what it printed above"}
			}
			took := time.Since(start)
			var of []startPart
			if err := json.Unmarshal(out, &of); err != nil || len(of) != len(startParts) {
				return row{}, &errkind.Fault{Op: "start", Reason: fmt.Sprintf("the child process printed %q", out), Err: err}
			}
			if i == 0 {
				continue // it compiles
			}
			times = append(times, took)
			cpu = append(cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			for j, part := range of {
				parts[j], cpuParts[j] = append(parts[j], part.Wall), append(cpuParts[j], part.CPU)
			}
		}
		var notes []string
		for j, name := range startParts {
			notes = append(notes, fmt.Sprintf("%s %.0f/%.0f ms", name, median(parts[j])/1e3, median(cpuParts[j])/1e3))
		}
		least := slices.Min(times)
		return row{Us: round(median(times)), CPUUs: round(median(cpu)),
			Note: fmt.Sprintf("%d x %d, least %.0f ms; time/processor: %s", replicas, logicalDevices, float64(least.Microseconds())/1e3, strings.Join(notes, ", "))}, nil
	}
}

// childLayers takes one step of the decoder and prints the parts of the time until its loss.
func childLayers(ctx context.Context, mode string) error {
	var parts []startPart
	var replicas, logicalDevices int
	var since int64
	var size float64 // the parent's effort
	var loop bool
	var dir string
	if _, err := fmt.Sscanf(strings.Replace(mode, ",", " ", 4), "%dx%d %d %g %t %s", &replicas, &logicalDevices, &since, &size, &loop, &dir); err != nil {
		return err
	}
	last, lastCPU := time.Unix(0, since), time.Duration(0)
	note := func() {
		now, cpu := time.Now(), cpuTime()
		parts, last, lastCPU = append(parts, startPart{now.Sub(last), cpu - lastCPU}), now, cpu
	}
	note()
	c := transformer.Peer()
	c.Batch = 8
	if size < 1 {
		c = transformer.Tiny()
	}
	c.Loop = loop
	sys, err := system.Open(ctx, system.Options{CPUDevices: replicas * logicalDevices})
	if err != nil {
		return err
	}
	opts := c.Options(replicas, logicalDevices)
	if opts.Compiler, err = cache.Open(dir, cache.Options{}); err != nil {
		return err
	}
	opts.Phases = func(p strategy.Phase) {
		if p.Stage == strategy.StageTracing && len(parts) > 1 {
			return
		}
		note()
	}
	strat, err := strategy.New(sys, opts)
	if err != nil {
		return err
	}
	loss, err := c.Step(strat, model.NewStore()).Run(ctx, c.Tokens())
	if err != nil {
		return err
	}
	if _, err := loss.Float64(ctx); err != nil {
		return err
	}
	note()
	return json.NewEncoder(os.Stdout).Encode(parts)
}
