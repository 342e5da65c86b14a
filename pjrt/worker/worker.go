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

// Options configures a [Compiler]. The zero value requires the command tpustrategy in $PATH.
type Options struct {
	// Command is the program of the workers with its arguments: the result of [Main], or another
	// program that calls [Serve]. nil means `tpustrategy compile-worker`.
	Command []string
	// Timeout stops a compilation that takes longer. 0 means no timeout.
	Timeout time.Duration
	// MemoryBytes limits the writable memory of a worker. 0 means no limit. A compiler that needs more
	// memory aborts its process, which is reported as an [*Error]. It is supported on Linux only.
	MemoryBytes int64
	// MaxWorkers is the maximum number of workers that run at the same time. Other compilations wait.
	// 0 means the number of processors.
	MaxWorkers int
	// Env are additional environment variables "NAME=value" of the workers.
	Env []string
	// Transforms are the names of the transforms that the worker applies. They must have been passed to
	// [Main] or [Serve]. A cache does not include them in its keys, so it needs a separate directory.
	Transforms []string
	// OpenOptions specifies which plugin files the worker trusts; see [pjrt.Open].
	OpenOptions pjrt.OpenOptions
	// OnStart, if not nil, is called with the process id of each new worker.
	OnStart func(pid int)
	// Logger receives a debug message for each compilation and a warning for each worker that
	// returned no result. nil discards them.
	Logger *slog.Logger
}

// Compiler compiles programs in worker processes. It is safe for concurrent use. It does not need
// to be closed.
type Compiler struct {
	opts  Options
	slots chan struct{}
}

// New returns a compiler. It does not start a process. If there is no program for the workers, the
// error is an [*Error] with NotStarted.
func New(o Options) (*Compiler, error) {
	if o.Command == nil {
		path, err := exec.LookPath("tpustrategy")
		if err != nil {
			return nil, &Error{Reason: NotStarted, Err: err,
				Hint: "call worker.Main at the start of main and set Options.Command to its result, " +
					"or install github.com/tpustrategy/tpustrategy/cmd/tpustrategy"}
		}
		o.Command = []string{path, "compile-worker"}
	}
	if len(o.Command) == 0 || o.Command[0] == "" {
		return nil, &Error{Reason: NotStarted, State: fmt.Sprintf("the command %q has no program", o.Command),
			Hint: "set Options.Command to a program and its arguments"}
	}
	o.Command, o.Env, o.Transforms = slices.Clone(o.Command), slices.Clone(o.Env), slices.Clone(o.Transforms)
	if o.MaxWorkers <= 0 {
		o.MaxWorkers = runtime.GOMAXPROCS(0)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Compiler{opts: o, slots: make(chan struct{}, o.MaxWorkers)}, nil
}

// Compile compiles a program for the devices of the client in a worker, and loads it in this
// process. The caller must close the executable, which keeps its serialized bytes in memory. If ctx
// ends, the worker is stopped. Errors are an [*Error] or an error of [pjrt.Client.Compile].
func (c *Compiler) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	req := request{Plugin: client.Plugin().Path(), Program: program, Options: opts}
	if client.PlatformName() == "cpu" {
		req.UseClient, req.ClientOptions = true, client.Options().Options
	} else {
		topology, err := client.Topology()
		if err != nil {
			return nil, err
		}
		req.Topology, err = topology.Serialize()
		if closeErr := topology.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return nil, opError("describe the devices", err)
		}
	}
	resp, err := c.runWorker(ctx, client.PlatformName(), req)
	if err != nil {
		return nil, err
	}
	return client.Load(ctx, resp.Record.Serialized, pjrt.LoadOptions{KeepSerialized: true})
}

// CompileTopology compiles a program ahead of time in a worker, with the plugin of the topology.
// The result provides the properties of a [pjrt.ExecutableRecord]. If ctx ends, the worker is
// stopped. Errors are an [*Error] or an error of [pjrt.Topology.Compile].
func (c *Compiler) CompileTopology(ctx context.Context, topology *pjrt.Topology, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.Executable, error) {
	req, err := newRequest(topology, program, opts)
	if err != nil {
		return nil, err
	}
	resp, err := c.runWorker(ctx, topology.PlatformName(), req)
	if err != nil {
		return nil, err
	}
	return resp.Record.Executable(), nil
}

// CompileUntil compiles a program ahead of time up to a stage, and returns the program at this
// stage, partitioned and fused, as an encoded xla.HloModuleProto. This takes a few percent of the
// time of a complete compilation. The result is not cached. If the plugin does not support
// transforms, the error matches errors.ErrUnsupported. Other errors are as for CompileTopology.
func (c *Compiler) CompileUntil(ctx context.Context, topology *pjrt.Topology, program pjrt.Program,
	opts pjrt.CompileOptions, stage pjrt.Stage) ([]byte, error) {
	req, err := newRequest(topology, program, opts)
	if err != nil {
		return nil, err
	}
	req.StopAtStage, req.Stage = true, stage
	resp, err := c.runWorker(ctx, topology.PlatformName(), req)
	return resp.Module, err
}

func newRequest(topology *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions) (req request, err error) {
	req = request{Plugin: topology.PluginPath(), Program: program, Options: opts}
	if options, ok := topology.Options(); ok {
		req.TopologyName, req.TopologyOptions = topology.Name(), options
	} else if req.Topology, err = topology.Serialize(); err != nil {
		err = opError("describe the devices", err)
	}
	return req, err
}

// runWorker starts a worker process, sends a request and returns the response. It waits while
// Options.MaxWorkers other workers are running. platform is the name of the platform, such as "tpu".
func (c *Compiler) runWorker(ctx context.Context, platform string, req request) (resp response, err error) {
	if c.slots == nil {
		return response{}, &Error{Reason: NotStarted, State: "the compiler is a zero value", Hint: "create it with New"}
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return response{}, opError("compile", context.Cause(ctx))
	}
	req.Protocol, req.OpenOptions, req.MemoryBytes, req.Transforms = protocolVersion, c.opts.OpenOptions,
		c.opts.MemoryBytes,
		c.opts.Transforms
	data, err := encode(req)
	if err != nil {
		return response{}, &errkind.Fault{Op: "worker: compile", Reason: "the options cannot be encoded",
			Class: errkind.ValueError, Err: err}
	}
	limited := ctx
	if c.opts.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, c.opts.Timeout, errTimeout)
		defer cancel()
	}
	start := time.Now()
	out, err := child.Run(limited, child.Command{Path: c.opts.Command[0], Args: c.opts.Command,
		Env: c.environ(platform), OnStart: c.opts.OnStart}, data)
	if err != nil {
		err = newError(ctx, c.opts.Timeout, err)
		c.opts.Logger.Warn("compile worker returned no result", "elapsed", time.Since(start), "error", err)
		return response{}, err
	}
	if err := decode(out, &resp); err != nil {
		return response{}, &Error{Reason: Died, State: "its response cannot be decoded", Err: err,
			Hint: "build the worker's program and this program from the same version"}
	}
	if err := resp.err(); err != nil {
		return response{}, err
	}
	c.opts.Logger.Debug("compiled in a worker", "elapsed", time.Since(start), "bytes", len(resp.Record.Serialized))
	return resp, nil
}

// tpuDefaultEnv contains the default environment of workers for TPUs. The variables permit a worker to
// load libtpu although its parent has loaded libtpu, and prevent libtpu from searching for devices.
var tpuDefaultEnv = []string{"ALLOW_MULTIPLE_LIBTPU_LOAD=1", "TPU_SKIP_MDS_QUERY=1", "TPU_ACCELERATOR_TYPE=v5litepod-8",
	"TPU_WORKER_HOSTNAMES=localhost", "TPU_WORKER_ID=0"}

// environ returns the environment of a worker: the variables of this process, tpuDefaultEnv for
// TPUs, and Options.Env. If a variable occurs several times, its last value applies.
func (c *Compiler) environ(platform string) []string {
	env := os.Environ()
	if platform == "tpu" {
		for _, setting := range tpuDefaultEnv {
			name, _, _ := strings.Cut(setting, "=")
			if os.Getenv(name) == "" {
				env = append(env, setting)
			}
		}
	}
	return append(env, c.opts.Env...)
}
