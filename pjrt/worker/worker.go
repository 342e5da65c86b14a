package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Options configure a Compiler. The zero value works where the command tpustrategy is on $PATH.
type Options struct {
	// Command is the worker's program and its arguments: those that [Main] returns, or those of
	// another program that calls [Serve]. Nil is `tpustrategy compile-worker`.
	Command []string
	// Timeout ends a compilation that takes longer; 0 lets it take any time.
	Timeout time.Duration
	// MemoryBytes bounds the memory that a worker writes to; 0 is no bound. A compiler that needs
	// more ends its process, which is an [*Error]. Linux only.
	MemoryBytes int64
	// Parallel is the number of workers that run at a time; further compilations wait. 0 is the
	// number of processors.
	Parallel int
	// Env are settings "NAME=value" for the workers, over this process's environment.
	Env []string
	// Transforms are the names of those given to [Main] or [Serve] that the worker applies; nil is
	// none. What they make of a program no cache of compiled programs knows: give it another folder.
	Transforms []string
	// PluginCheck says which plugin files the worker trusts; see [pjrt.Open].
	PluginCheck pjrt.OpenOptions
	// Started is told the process id of each worker as it starts, such as for a display of its
	// memory; nil is nobody.
	Started func(pid int)
	// Logger receives a line for each compilation (debug) and for each worker that gave no answer
	// (warn); nil discards.
	Logger *slog.Logger
}

// Compiler compiles in worker processes. It is safe for concurrent use and has no Close.
type Compiler struct {
	opts  Options
	turns chan struct{}
}

// New returns a compiler. It starts nothing yet. If there is no program to start, the error is an
// [*Error] with NotStarted.
func New(o Options) (*Compiler, error) {
	if o.Command == nil {
		path, err := exec.LookPath("tpustrategy")
		if err != nil {
			return nil, &Error{Reason: NotStarted, Err: err, Hint: "call worker.Main at the start of main and give what it returns as Options.Command, or install github.com/tpustrategy/tpustrategy/cmd/tpustrategy"}
		}
		o.Command = []string{path, "compile-worker"}
	}
	if len(o.Command) == 0 || o.Command[0] == "" {
		return nil, &Error{Reason: NotStarted, State: fmt.Sprintf("the command %q names no program", o.Command), Hint: "give a program and its arguments as Options.Command"}
	}
	o.Command, o.Env, o.Transforms = slices.Clone(o.Command), slices.Clone(o.Env), slices.Clone(o.Transforms)
	if o.Parallel <= 0 {
		o.Parallel = runtime.GOMAXPROCS(0)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Compiler{opts: o, turns: make(chan struct{}, o.Parallel)}, nil
}

// Compile compiles a program for the client's devices in a worker, and loads it here. The
// executable is the caller's to Close, and keeps its serialized form. ctx ends the worker. Errors
// are [*Error] and those of [pjrt.Client.Compile].
func (c *Compiler) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	r := request{Plugin: client.Plugin().Path(), Program: program, Options: opts}
	if client.PlatformName() == "cpu" {
		r.Client, r.ClientOptions = true, client.Options().Options
	} else {
		topology, err := client.Topology()
		if err != nil {
			return nil, err
		}
		r.Topology, err = topology.Serialize()
		if closed := topology.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return nil, fail("describe the devices", err)
		}
	}
	a, err := c.compile(ctx, client.PlatformName(), r)
	if err != nil {
		return nil, err
	}
	return client.Load(ctx, a.Record.Serialized, pjrt.LoadOptions{Keep: true})
}

// CompileTopology compiles a program ahead of time in a worker, by the plugin that describes the
// topology. The executable tells what the worker found out: see [pjrt.ExecutableRecord]. ctx ends
// the worker. Errors are [*Error] and those of [pjrt.Topology.Compile].
func (c *Compiler) CompileTopology(ctx context.Context, topology *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error) {
	r, err := requestFor(topology, program, opts)
	if err != nil {
		return nil, err
	}
	a, err := c.compile(ctx, topology.PlatformName(), r)
	if err != nil {
		return nil, err
	}
	return a.Record.Executable(), nil
}

// Probe compiles a program ahead of time as far as a stage, and returns the program there, an encoded
// xla.HloModuleProto: partitioned and fused, as the devices would run it. It costs a few hundredths
// of the whole compilation, and nothing of it is kept. The error of a plugin without transforms
// matches errors.ErrUnsupported; others are those of CompileTopology.
func (c *Compiler) Probe(ctx context.Context, topology *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions, stage pjrt.Stage) ([]byte, error) {
	r, err := requestFor(topology, program, opts)
	if err != nil {
		return nil, err
	}
	r.Probe, r.Stage = true, stage
	a, err := c.compile(ctx, topology.PlatformName(), r)
	return a.Module, err
}

func requestFor(topology *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions) (r request, err error) {
	r = request{Plugin: topology.PluginPath(), Program: program, Options: opts}
	if options, ok := topology.Options(); ok {
		r.Name, r.TopologyOptions = topology.Name(), options
	} else if r.Topology, err = topology.Serialize(); err != nil {
		err = fail("describe the devices", err)
	}
	return r, err
}

// compile has a worker answer a request.
func (c *Compiler) compile(ctx context.Context, platform string, r request) (a answer, err error) {
	if c.turns == nil {
		return answer{}, &Error{Reason: NotStarted, State: "the compiler is a zero value", Hint: "make it with New"}
	}
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return answer{}, fail("compile", context.Cause(ctx))
	}
	r.Protocol, r.Check, r.MemoryBytes, r.Transforms = protocol, c.opts.PluginCheck, c.opts.MemoryBytes, c.opts.Transforms
	data, err := encode(r)
	if err != nil {
		return answer{}, &errkind.Fault{Op: "worker: compile", Reason: "the options cannot be passed on", Class: errkind.ValueError, Err: err}
	}
	limited := ctx
	if c.opts.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, c.opts.Timeout, errTimeout)
		defer cancel()
	}
	start := time.Now()
	out, err := child.Run(limited, child.Command{Path: c.opts.Command[0], Args: c.opts.Command, Env: c.environ(platform), Started: c.opts.Started}, data)
	if err != nil {
		err = explain(ctx, c.opts.Timeout, err)
		c.opts.Logger.Warn("compile worker gave no answer", "elapsed", time.Since(start), "error", err)
		return answer{}, err
	}
	if err := decode(out, &a); err != nil {
		return answer{}, &Error{Reason: Died, State: "its answer cannot be read", Err: err, Hint: "build the worker's program and this one from one version"}
	}
	if err := a.err(); err != nil {
		return answer{}, err
	}
	c.opts.Logger.Debug("compiled in a worker", "elapsed", time.Since(start), "bytes", len(a.Record.Serialized))
	return a, nil
}

// besideTPU is what libtpu reads as a worker loads it: the parent may have it loaded too, and the
// worker does not look for devices.
var besideTPU = []string{"ALLOW_MULTIPLE_LIBTPU_LOAD=1", "TPU_SKIP_MDS_QUERY=1", "TPU_ACCELERATOR_TYPE=v5litepod-8", "TPU_WORKER_HOSTNAMES=localhost", "TPU_WORKER_ID=0"}

// environ is the environment of a worker. Of a name that is there twice the last holds.
func (c *Compiler) environ(platform string) []string {
	env := os.Environ()
	if platform == "tpu" {
		for _, setting := range besideTPU {
			name, _, _ := strings.Cut(setting, "=")
			if os.Getenv(name) == "" {
				env = append(env, setting)
			}
		}
	}
	return append(env, c.opts.Env...)
}
