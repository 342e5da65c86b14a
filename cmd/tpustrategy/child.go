package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report"
)

// Plugins are loaded only in child processes. If a compiler aborts or is killed for its memory use, this
// process reports an error. Each child can have its own environment, which libtpu reads when it is loaded.

// childRequest is a request from the parent process to a child process. Exactly one field is set.
type childRequest struct {
	Probe    *probeRequest    `json:"probe,omitempty"`
	Describe *describeRequest `json:"describe,omitempty"`
	Compile  *compileRequest  `json:"compile,omitempty"`
	Accept   *acceptCmd       `json:"accept,omitempty"`
	Plan     *planRequest     `json:"plan,omitempty"`
	Validate *validateRequest `json:"validate,omitempty"`
	Generate *generateCmd     `json:"generate,omitempty"`
}

// childAnswer is the result or the error that a child process returns.
type childAnswer struct {
	Probe    *probeAnswer      `json:"probe,omitempty"`
	Describe *sliceDescription `json:"describe,omitempty"`
	Compile  *report.Report    `json:"compile,omitempty"`
	Accept   *acceptAnswer     `json:"accept,omitempty"`
	Plan     *planAnswer       `json:"plan,omitempty"`
	Validate []prediction      `json:"validate,omitempty"`
	Generate *generateAnswer   `json:"generate,omitempty"`
	Error    *failure          `json:"error,omitempty"`
}

// childError reports that a child process exited without a result.
type childError struct {
	// Doing describes the task of the child process, such as "compiling digits for v5e:2x4".
	Doing string
	Err   *child.Error
}

func (e *childError) Error() string { return e.Doing + ": " + e.Err.Error() }
func (e *childError) Unwrap() error { return e.Err }

// childEnv disables the logs of plugins. Values that the user has set take precedence.
var childEnv = []string{"TPU_LOG_DIR=disabled", "TPU_STDERR_LOG_LEVEL=3", "TF_CPP_MIN_LOG_LEVEL=2",
	"TPU_MIN_LOG_LEVEL=3"}

// runChild starts this program as a child process, sends the request, and returns the answer. In
// errors, doing describes the task of the child process.
func (a *app) runChild(ctx context.Context, doing string, request childRequest, command child.Command) (*childAnswer,
	error) {
	input, err := json.Marshal(request)
	if err != nil {
		return nil, &errkind.Fault{Op: doing, Err: err}
	}
	command.Path, command.Args = a.executable, []string{a.argv0, "child"}
	output, err := child.Run(ctx, command, input)
	if died := (*child.Error)(nil); errors.As(err, &died) {
		return nil, &childError{Doing: doing, Err: died}
	}
	if err != nil {
		return nil, &errkind.Fault{Op: doing, Err: err}
	}
	var answer childAnswer
	if err := json.Unmarshal(output, &answer); err != nil {
		return nil, &childError{Doing: doing, Err: &child.Error{State: "it returned no result: " + err.Error()}}
	}
	if answer.Error != nil {
		return nil, answer.Error
	}
	return &answer, nil
}

// quietEnviron returns the environment of this process, extended by the variables of childEnv that
// are not set yet.
func (a *app) quietEnviron() []string {
	env := a.environ[:len(a.environ):len(a.environ)]
	for _, setting := range childEnv {
		name, _, _ := strings.Cut(setting, "=")
		if a.getenv(name) == "" {
			env = append(env, setting)
		}
	}
	return env
}

// runChildWithHeartbeat is like runChild, but passes the messages of the child process to notice,
// and kills the child process if it sends no message for the given time.
func (a *app) runChildWithHeartbeat(ctx context.Context, doing string, request childRequest, silence time.Duration,
	notice func(line []byte)) (*childAnswer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	const ticks = 10 // silence is counted in ticks, so that it does not grow while this process is stopped
	var silent atomic.Int32
	heard := func(line []byte) {
		silent.Store(0)
		notice(line)
	}
	go func() {
		tick := time.NewTicker(silence / ticks)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if silent.Add(1) > ticks {
					cancel(&errkind.Fault{Op: "the process",
						Reason: fmt.Sprintf("no sign of life in %v: it is stopped, or gets no processor", silence),
						Class:  errkind.DeadlineExceededError})
				}
			}
		}
	}()
	return a.runChild(ctx, doing, request, child.Command{Env: a.environ, OnNotice: heard})
}

// workerCmd is a hidden command that runs the compile worker of package pjrt/worker.
type workerCmd struct{}

func (workerCmd) Run() error { return worker.Serve() }

// childCmd is the hidden command that a child process runs.
type childCmd struct{}

func (childCmd) Run(ctx context.Context, a *app) error {
	err := child.Serve("child", func(input []byte) []byte {
		var request childRequest
		answer, err := (*childAnswer)(nil), json.Unmarshal(input, &request)
		if err == nil {
			answer, err = a.executeRequest(ctx, request)
		}
		if err != nil {
			answer = &childAnswer{Error: classify(err)}
		}
		out, err := json.Marshal(answer)
		if err != nil {
			out, _ = json.Marshal(&childAnswer{Error: classify(err)})
		}
		return out
	})
	if err != nil {
		return &usageError{Err: err}
	}
	return nil
}

// executeRequest executes the request in a child process.
func (a *app) executeRequest(ctx context.Context, r childRequest) (*childAnswer, error) {
	switch {
	case r.Probe != nil:
		p, err := probePlugin(ctx, *r.Probe)
		return &childAnswer{Probe: p}, err
	case r.Describe != nil:
		d, err := describeInChild(ctx, *r.Describe)
		return &childAnswer{Describe: d}, err
	case r.Compile != nil:
		c, err := compileInChild(ctx, a, *r.Compile)
		return &childAnswer{Compile: c}, err
	case r.Plan != nil:
		p, err := searchPlanInChild(ctx, a, *r.Plan)
		return &childAnswer{Plan: p}, err
	case r.Validate != nil:
		v, err := validateInChild(ctx, a, *r.Validate)
		return &childAnswer{Validate: v}, err
	case r.Generate != nil:
		g, err := generateInChild(ctx, r.Generate)
		return &childAnswer{Generate: g}, err
	case r.Accept != nil:
		c, err := acceptInChild(ctx, r.Accept)
		return &childAnswer{Accept: c}, err
	}
	return nil, usageErrorf("child", "send one request", "the request is empty")
}
