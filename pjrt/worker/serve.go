package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// workerArgument is the command-line argument with which a program is started as a worker.
const workerArgument = "tpustrategy-compile-worker"

// Main allows the current program to be started as a worker. It must be called at the start of
// main. In a worker process, Main performs the compilation and exits. Otherwise, it returns the
// command for [Options]. transforms are available to workers and are applied if
// [Options].Transforms contains their names.
func Main(transforms ...pjrt.Transform) []string {
	if len(os.Args) == 2 && os.Args[1] == workerArgument {
		if err := Serve(transforms...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	self := "/proc/self/exe" // valid even if the file was replaced
	if runtime.GOOS != "linux" {
		path, err := os.Executable()
		if err != nil {
			path = os.Args[0]
		}
		self = path
	}
	return []string{self, workerArgument}
}

// Serve is the main function of a worker: it reads a request from its parent process, writes the
// response and returns. See [Main] for transforms.
func Serve(transforms ...pjrt.Transform) error {
	preferOOMKill()
	return child.Serve("worker", func(data []byte) []byte {
		resp := response{Protocol: protocolVersion}
		var req request
		var err error
		if err = decode(data, &req); err == nil && req.Protocol == protocolVersion {
			err = limitMemory(req.MemoryBytes)
			if err == nil {
				err = resp.handleRequest(context.Background(), req, transforms)
			}
		}
		if err != nil {
			resp.setError(err)
		}
		out, err := encode(resp)
		if err != nil { // an error cannot be encoded
			out, _ = encode(response{Protocol: protocolVersion, ErrorText: err.Error()})
		}
		return out
	})
}

// handleRequest compiles the program of a request and stores the result in resp. It accepts
// untrusted programs, because a compiler crash affects only this worker process.
func (resp *response) handleRequest(ctx context.Context, req request, transforms []pjrt.Transform) error {
	req.Program.Trusted = true
	plugin, err := pjrt.Open(req.Plugin, req.OpenOptions)
	if err != nil {
		return err
	}
	// The process exits after the response, so nothing needs to be closed.
	for _, name := range req.Transforms {
		i := slices.IndexFunc(transforms, func(t pjrt.Transform) bool { return t.Name == name })
		if i < 0 {
			return &errkind.Fault{Op: "worker: compile",
				Reason: fmt.Sprintf("the worker's program has no transform %q", name),
				Hint:   "pass it to worker.Main or worker.Serve in that program", Class: errkind.NotFoundError}
		}
		if _, err := plugin.Register(transforms[i]); err != nil {
			return err
		}
	}
	var probed atomic.Pointer[[]byte]
	if req.StopAtStage {
		if _, err := plugin.Register(pjrt.Transform{Name: "probe", Stage: req.Stage,
			Apply: func(module []byte) ([]byte, error) {
				probed.CompareAndSwap(nil, &module)
				return nil, errors.New("the probe has received the program")
			}}); err != nil {
			return err
		}
	}
	x, loaded, err := compileRequest(ctx, plugin, req)
	defer runtime.KeepAlive(loaded) // its cleanup would close x
	if module := probed.Load(); module != nil {
		resp.Module = *module
		return nil
	}
	if err == nil && req.StopAtStage {
		err = &errkind.Fault{Op: "worker: probe", Reason: "the compiler did not call the transform of the probe",
			Class: errkind.FailedPreconditionError}
	}
	if err == nil {
		resp.Record, err = newRecord(x)
	}
	return err
}

// compileRequest compiles the program of a request. If the LoadedExecutable is not nil, it owns the
// returned Executable.
func compileRequest(ctx context.Context, plugin *pjrt.Plugin, req request) (*pjrt.Executable, *pjrt.LoadedExecutable,
	error) {
	if req.UseClient {
		client, err := plugin.NewClient(ctx, pjrt.ClientOptions{Options: req.ClientOptions})
		if err != nil {
			return nil, nil, err
		}
		loaded, err := client.Compile(ctx, req.Program, req.Options)
		if err != nil {
			return nil, nil, err
		}
		return loaded.Executable(), loaded, nil
	}
	topology, err := openTopology(ctx, plugin, req)
	if err != nil {
		return nil, nil, err
	}
	x, err := topology.Compile(ctx, req.Program, req.Options)
	return x, nil, err
}

func openTopology(ctx context.Context, plugin *pjrt.Plugin, req request) (*pjrt.Topology, error) {
	if req.Topology != nil {
		return plugin.LoadTopology(ctx, req.Topology)
	}
	return plugin.NewTopology(ctx, req.TopologyName, req.TopologyOptions)
}

// newRecord returns the record of x. It returns an error if the plugin cannot serialize the program.
func newRecord(x *pjrt.Executable) (pjrt.ExecutableRecord, error) {
	r, err := x.Record()
	if err != nil {
		return r, err
	}
	if e := r.Missing["serialize"]; e != nil {
		if errors.Is(e, errors.ErrUnsupported) {
			return r, e
		}
		return r, &errkind.Fault{Op: "the compiled program", Reason: "it cannot be serialized", Err: e}
	}
	return r, nil
}
