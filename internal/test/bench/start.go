package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"time"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// start describes a process that runs one training step and prints its loss. The model is the MLP
// or the decoder, on replicas of up to 2 logical devices.
type start struct {
	Cached, Decoder, Loop bool
	// The parent process sets the cache folder, the number of devices, and the effort.
	Dir     string
	Devices int
	Effort  float64
}

// firstStep returns a benchmark of a process from its start to its exit. The first process fills
// the caches.
func firstStep(s start) func(ctx context.Context, r *rig) (row, error) {
	return func(ctx context.Context, r *rig) (row, error) {
		self, err := os.Executable()
		if err != nil {
			return row{}, err
		}
		s := s
		s.Devices, s.Effort = r.devices, effort
		if s.Dir, err = r.folder(); err != nil {
			return row{}, err
		}
		mode, err := json.Marshal(s)
		if err != nil {
			return row{}, err
		}
		var cpu []float64
		result, err := repeat{turns: 10, limit: time.Minute, ops: 1}.time(timed(func() error {
			cmd := exec.CommandContext(ctx, self, "-child", string(mode))
			cmd.Stderr = os.Stderr
			if err := cmd.Run(); err != nil {
				return &errkind.Fault{Op: "start", Reason: "the child process failed", Err: err, Hint: "see what it printed above"}
			}
			cpu = append(cpu, us(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()))
			return nil
		}, nil), nil)
		result.Allocs, result.CPUUs = 0, median(cpu) // the child's
		return result, err
	}
}

// takeStep runs one step in the child process and waits for the loss.
func takeStep(ctx context.Context, mode string) error {
	var s start
	err := json.Unmarshal([]byte(mode), &s)
	if err != nil {
		return err
	}
	effort = s.Effort
	r := &rig{devices: s.Devices}
	defer r.close()
	var opts strategy.Options
	c := peer()
	if s.Decoder {
		c.Batch, c.Loop = 8, s.Loop
		opts = c.Options(0, min(s.Devices, 2))
	}
	if s.Cached {
		if opts.Compiler, err = cache.Open(s.Dir, cache.Options{}); err != nil {
			return err
		}
	}
	strat, err := r.strategy(ctx, opts)
	if err != nil {
		return err
	}
	var loss *strategy.Mirrored
	if s.Decoder {
		loss, err = c.Step(strat, model.NewStore()).Run(ctx, c.Tokens())
	} else {
		p := mlp()
		step, failed := p.step(strat)
		if failed != nil {
			return failed
		}
		loss, err = step.Run(ctx, p.x, p.y)
	}
	if err != nil {
		return err
	}
	_, err = loss.Float64(ctx)
	return err
}
